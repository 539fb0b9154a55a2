/* The verbs over vectors in hostile memory: sums, copies, and what lies between values and scales.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"
#include "tests/support/draft_calls.h"
#include "tests/support/history.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL,
                               OCTAVO_RULE_MSAMP, OCTAVO_RULE_MSAMP04};

/* Lengths around vectors and segments, and every one up to two vectors of bytes. */
std::vector<int64_t> lengths() {
  std::vector<int64_t> all;
  for (int64_t n = 1; n <= 140; ++n) all.push_back(n);
  for (const int64_t n : {217, 511, 512, 513, 1031, 4096, 50001}) all.push_back(n);
  return all;
}

/* n floats of several magnitudes. */
std::vector<float> values(int64_t n, unsigned seed) {
  const Matrix m = Matrix(OCTAVO_F32, 1, n).fill(seed, 5.0f);
  std::vector<float> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(m.get(0, i));
  return all;
}

std::vector<float> magnitudes(int64_t n, unsigned seed) {
  std::vector<float> all = values(n, seed);
  for (float &value : all) value = std::fabs(value);
  return all;
}

TEST(GuardSumQuantized, every_length_and_number_of_shards) {
  unsigned turn = 0;
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const int64_t count : lengths()) {
      for (const int64_t shards : {1, 2, 9}) {
        if (count > 5000 && shards > 2) continue;
        /* Sums of E4M3 leave the range in some elements. */
        const Matrix codes = Matrix(dtype, shards, count, turn % 5).fill(turn, 150.0f);
        const Matrix out(dtype, 1, count);
        expect_guarded("sum_quantized " + dtype_text(dtype) + ", " + shape_text(shards, count),
                       [&](const Kernels &kernels, CallMemory &memory) {
                         auto c = make_call<octavo_sum_quantized>(OCTAVO_KIND_SUM_QUANTIZED);
                         const octavo_tensor from = memory.input(codes);
                         c.codes = from.data;
                         c.out = memory.output(out).data;
                         c.count = static_cast<uint64_t>(count);
                         c.shards = static_cast<uint64_t>(shards);
                         c.shard_stride = static_cast<uint64_t>(from.stride);
                         c.dtype = dtype;
                         if (turn % 3 != 0) {
                           c.saturated = memory.output(std::vector<float>{1.0f});
                           c.added = memory.output(std::vector<float>{2.0f});
                         }
                         c.count_as = turn % 2 == 0 ? 0.0f : 0.5f;
                         memory.seal();
                         return draft_call(kernels.table, kernels.ctx(), &c);
                       });
        if (HasFatalFailure()) return;
        ++turn;
      }
    }
  }
}

void expect_sum(uint32_t dtype, int64_t rows, int64_t cols, unsigned turn) {
  const Matrix in = Matrix(dtype, rows, cols, turn % 3).fill(turn, 2.0f);
  for (const bool of_rows : {true, false}) {
    const std::string name = std::string(of_rows ? "sum_rows " : "sum_of_squares ") +
                             dtype_text(dtype) + ", " + shape_text(rows, cols);
    expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
      auto c = make_call<octavo_sum>(OCTAVO_KIND_SUM);
      const octavo_tensor t = memory.input(in);
      const octavo_scale inv = per_tensor(memory.input(std::vector<float>{0.37f}));
      c.in = &t;
      if (turn % 2 == 0) c.in_scale_inv = &inv;
      c.out = memory.output(values(of_rows ? cols : 1, turn + 1));
      c.accumulate = turn % 4 < 2 ? 1 : 0;
      memory.seal();
      return of_rows ? kernels.table->sum_rows(kernels.ctx(), &c) : kernels.sum_of_squares(c);
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GuardSums, every_dtype_and_size) {
  unsigned turn = 0;
  for (const uint32_t dtype : kAny) {
    for (const int64_t rows : kGuardSizes) {
      for (const int64_t cols : kGuardSizes) {
        ASSERT_NO_FATAL_FAILURE(expect_sum(dtype, rows, cols, turn++));
      }
    }
    for (int64_t cols = 1; cols <= 130; ++cols) {
      ASSERT_NO_FATAL_FAILURE(expect_sum(dtype, 2, cols, turn++));
    }
    ASSERT_NO_FATAL_FAILURE(expect_sum(dtype, 3, 1031, turn++));
  }
}

TEST(GuardCopy, every_length) {
  for (const int64_t n : lengths()) {
    std::vector<uint8_t> bytes(static_cast<size_t>(n));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 1);
    for (const bool fills : {false, true}) {
      expect_guarded("copy " + std::to_string(n), [&](const Kernels &kernels, CallMemory &memory) {
        auto c = make_call<octavo_copy>(OCTAVO_KIND_COPY);
        c.out = memory.output_bytes(std::vector<uint8_t>(bytes.size(), 0xA5));
        c.in = fills ? nullptr : memory.input_bytes(bytes);
        c.bytes = bytes.size();
        memory.seal();
        return kernels.table->copy(kernels.ctx(), &c);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GuardScaleValues, every_length_and_in_place) {
  for (const int64_t n : lengths()) {
    for (const bool in_place : {false, true}) {
      expect_guarded("scale_values " + std::to_string(n),
                     [&](const Kernels &kernels, CallMemory &memory) {
                       auto c = make_call<octavo_scale_values>(OCTAVO_KIND_SCALE_VALUES);
                       c.out = memory.output(values(n, 1));
                       c.in = in_place ? c.out : memory.input(values(n, 2));
                       c.n = static_cast<uint64_t>(n);
                       c.factor = 0.37f;
                       memory.seal();
                       return draft_call(kernels.table, kernels.ctx(), &c);
                     });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GuardScaleFromAmax, every_length_and_rule) {
  unsigned turn = 0;
  for (const int64_t n : lengths()) {
    std::vector<float> amax = magnitudes(n, turn);
    amax[amax.size() / 2] = 0.0f;
    expect_guarded("scale_from_amax " + std::to_string(n),
                   [&](const Kernels &kernels, CallMemory &memory) {
                     auto c = make_call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
                     c.amax = memory.input(amax);
                     if (turn % 3 != 0) c.scale = memory.output(values(n, 1));
                     if (turn % 3 != 1) c.scale_inv = memory.output(values(n, 2));
                     if (turn % 2 == 0) c.kept = memory.input(magnitudes(n, 3));
                     c.n = static_cast<uint64_t>(n);
                     c.format_max = 448.0f;
                     c.divide_by = turn % 4 == 0 ? 1.0f : 3.0f;
                     c.rule = kRules[turn % 5];
                     memory.seal();
                     return kernels.table->scale_from_amax(kernels.ctx(), &c);
                   });
    if (HasFatalFailure()) return;
    ++turn;
  }
}

TEST(GuardDelayed, every_pool_and_length_of_a_history) {
  unsigned turn = 0;
  for (const int64_t n : lengths()) {
    for (const int64_t length : {1, 2, 3, 17}) {
      if (n > 5000 && length > 3) continue;
      std::vector<float> amax = magnitudes(n, turn);
      amax[amax.size() / 2] = 0.0f;
      if (n > 3) amax[1] = std::numeric_limits<float>::infinity();
      expect_guarded("delayed_scale_update " + shape_text(length, n), [&](const Kernels &kernels,
                                                                          CallMemory &memory) {
        auto c = make_call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
        c.amax = memory.output(amax);
        c.history = memory.output(magnitudes(n * length, 1));
        c.scale = memory.output(magnitudes(n, 2));
        if (turn % 2 == 0) c.counter = memory.output(magnitudes(n, 3));
        c.n = static_cast<uint64_t>(n);
        c.length = static_cast<uint64_t>(length);
        c.format_max = 57344.0f;
        c.margin = static_cast<int32_t>(turn % 3);
        c.use_max = turn % 3 == 0 ? 0 : 1;
        c.rule = kRules[turn % 5];
        c.history_flags = history_of(c.rule);
        memory.seal();
        return kernels.table->delayed_scale_update(kernels.ctx(), &c);
      });
      if (HasFatalFailure()) return;
      ++turn;
    }
  }
}

TEST(GuardGradientScale, every_number_of_sums_and_targets) {
  for (const int64_t n : {1, 2, 15, 17, 63, 65, 217, 1031}) {
    for (const uint64_t targets : {uint64_t{0}, uint64_t{1}, uint64_t{5}}) {
      expect_guarded("gradient_scale " + std::to_string(n),
                     [&](const Kernels &kernels, CallMemory &memory) {
                       auto c = make_call<octavo_gradient_scale>(OCTAVO_KIND_GRADIENT_SCALE);
                       std::vector<float *> to;
                       for (uint64_t i = 0; i < targets; ++i) {
                         to.push_back(memory.output(std::vector<float>{-1.0f}));
                       }
                       c.sum = memory.input(magnitudes(n, 1));
                       c.sum_count = static_cast<uint64_t>(n);
                       if (n % 2 == 0) c.nonfinite = memory.input(std::vector<float>{1.0f});
                       c.norm = memory.output(std::vector<float>{-1.0f});
                       c.skip = memory.output(std::vector<float>{-1.0f});
                       c.grad_scale = to.data();
                       c.count = targets;
                       c.factor = 0.5f;
                       c.max_norm = 1.0f;
                       memory.seal();
                       return draft_call(kernels.table, kernels.ctx(), &c);
                     });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GuardPrescale, both_directions) {
  for (const float saturated : {0.0f, 3.0f}) {
    expect_guarded("prescale_update", [&](const Kernels &kernels, CallMemory &memory) {
      auto c = make_call<octavo_prescale_update>(OCTAVO_KIND_PRESCALE_UPDATE);
      c.prescale = memory.output(std::vector<float>{0.7f});
      c.saturated = memory.output(std::vector<float>{saturated});
      c.added = memory.output(std::vector<float>{1000.0f});
      c.threshold = 1e-5f;
      c.growth = 1.01f;
      c.low = 1e-3f;
      c.high = 10.0f;
      memory.seal();
      return draft_call(kernels.table, kernels.ctx(), &c);
    });
  }
}

}  // namespace
}  // namespace octavo::test
