/* quantize_stats against a scalar recount, for every granularity, level and number of threads.
 *
 * The recount takes the words of octavo/kernels.h element by element. Counts are equal; both sums
 * are fp64 in another order, so they differ by at most n * 2^-52 of the sum, rounded once to fp32.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Stats {
  float saturated = 0;
  float underflow = 0;
  float signal = 0;
  float noise = 0;
  bool operator==(const Stats &) const = default;
};

/* Values of a wide range with codes and scales that know nothing of each other's rules: some
 * elements saturate, some underflow, and each block has a scale of its own. */
struct Case {
  Case(uint32_t in_dtype, uint32_t code_dtype, uint32_t granularity, int64_t rows, int64_t cols,
       int64_t extra_rows, int64_t extra_cols)
      : in(in_dtype, rows, cols, 3),
        codes(code_dtype, rows + extra_rows, cols + extra_cols, 5),
        blocks(granularity == OCTAVO_PER_TENSOR ? uint32_t{OCTAVO_BLOCK_1X128} : granularity,
               rows + extra_rows, cols + extra_cols, 2),
        is_block(granularity != OCTAVO_PER_TENSOR) {
    in.fill(7, 60.0f);
    codes.fill(1, 100.0f); /* the padding must not count, so it is not 0 */
    blocks.fill(3);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        if ((row + col) % 7 == 0) in.set(row, col, in.get(row, col) * 1e-6f);
        if ((row + col) % 11 == 0) in.set(row, col, in.get(row, col) * 300.0f);
        if ((row + 2 * col) % 13 == 0) in.set(row, col, 0.0f);
        codes.set(row, col, in.get(row, col) / scale_inv(row, col));
      }
    }
  }

  float scale_inv(int64_t row, int64_t col) const {
    return is_block ? blocks.of(row, col) : tensor;
  }

  Matrix in;
  Matrix codes;
  Scales blocks;
  float tensor = 0.3f;
  octavo_scale tensor_scale = per_tensor(&tensor);
  bool is_block;
};

octavo_quantize_stats call_of(const Case &c, Stats *out) {
  auto call = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
  call.in = c.in.tensor();
  call.codes = c.codes.tensor();
  call.scale_inv = c.is_block ? c.blocks.get() : &c.tensor_scale;
  call.saturated = &out->saturated;
  call.underflow = &out->underflow;
  call.signal = &out->signal;
  call.noise = &out->noise;
  return call;
}

float largest_of(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? 448.0f : dtype == OCTAVO_E5M2 ? 57344.0f : 65504.0f;
}

Stats recount(const Case &c) {
  double saturated = 0, underflow = 0, signal = 0, noise = 0;
  for (int64_t row = 0; row < c.in.rows(); ++row) {
    for (int64_t col = 0; col < c.in.cols(); ++col) {
      const float value = c.in.get(row, col);
      const float code = c.codes.get(row, col);
      const float scale_inv = c.scale_inv(row, col);
      if (!std::isfinite(value)) {
        ++saturated;
        continue;
      }
      const double limit = static_cast<double>(scale_inv) * largest_of(c.codes.dtype());
      if (std::fabs(static_cast<double>(value)) > limit * (1 + 0x1p-19)) ++saturated;
      if (value != 0 && code == 0) ++underflow;
      const double error = static_cast<double>(value) - static_cast<double>(code * scale_inv);
      signal += static_cast<double>(value) * value;
      noise += error * error;
    }
  }
  return {static_cast<float>(saturated), static_cast<float>(underflow), static_cast<float>(signal),
          static_cast<float>(noise)};
}

/* One rounding to fp32 more or less, and the order of fp64 additions: 2^-22 of the sum is ample for
 * fewer than 2^20 elements. */
void expect_near(const Stats &found, const Stats &wanted) {
  EXPECT_EQ(found.saturated, wanted.saturated);
  EXPECT_EQ(found.underflow, wanted.underflow);
  EXPECT_NEAR(found.signal, wanted.signal, wanted.signal * 0x1p-22);
  EXPECT_NEAR(found.noise, wanted.noise, wanted.noise * 0x1p-22);
}

TEST(QuantizeStats, equals_a_recount_for_every_granularity_and_dtype) {
  Kernels kernels(3);
  const int64_t shapes[][2] = {{1, 1}, {3, 31}, {33, 129}, {130, 700}, {70, 1025}};
  for (const uint32_t granularity : {uint32_t{OCTAVO_PER_TENSOR}, uint32_t{OCTAVO_PER_ROW},
                                     uint32_t{OCTAVO_BLOCK_1X128}, uint32_t{OCTAVO_BLOCK_128X128},
                                     uint32_t{OCTAVO_BLOCK_1X32}, uint32_t{OCTAVO_BLOCK_32X32}}) {
    for (const uint32_t in_dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      for (const uint32_t code_dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
        for (const auto &shape : shapes) {
          SCOPED_TRACE(testing::Message()
                       << "granularity " << granularity << ", in " << in_dtype << ", codes "
                       << code_dtype << ", " << shape[0] << " x " << shape[1]);
          const Case c(in_dtype, code_dtype, granularity, shape[0], shape[1], 5, 40);
          Stats found;
          const octavo_quantize_stats call = call_of(c, &found);
          ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK)
              << kernels.host().last_text();
          expect_near(found, recount(c));
        }
      }
    }
  }
}

TEST(QuantizeStats, finds_all_four_in_the_case_that_the_tests_use) {
  const Stats stats = recount(Case(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X32, 130, 700, 5, 40));
  EXPECT_GT(stats.saturated, 100.0f);
  EXPECT_GT(stats.underflow, 100.0f);
  EXPECT_GT(stats.signal, stats.noise);
  EXPECT_GT(stats.noise, 0.0f);
}

TEST(QuantizeStats, has_equal_bits_on_every_level_and_for_any_number_of_threads) {
  const Case c(OCTAVO_BF16, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X128, 170, 1300, 0, 0);
  Stats expected;
  bool is_first = true;
  for (const std::string &level : supported_levels()) {
    for (const int threads : {0, 1, 2, 7}) {
      Kernels kernels(threads, level);
      Stats found;
      const octavo_quantize_stats call = call_of(c, &found);
      ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
      if (is_first) expected = found;
      is_first = false;
      EXPECT_EQ(found, expected) << level << ", " << threads << " threads";
    }
  }
}

TEST(QuantizeStats, an_inf_or_nan_is_saturated_and_enters_no_sum) {
  Kernels kernels(2);
  Case c(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_PER_TENSOR, 4, 600, 0, 0);
  Stats before;
  octavo_quantize_stats call = call_of(c, &before);
  c.in.set(0, 1, 0.0f);
  c.in.set(3, 599, 0.0f);
  c.in.set(2, 5, 0.0f);
  for (const int64_t at : {1, 4 * 600 - 1, 2 * 600 + 5}) c.codes.set(at / 600, at % 600, 0.0f);
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  c.in.set(0, 1, kNan);
  c.codes.set(0, 1, kNan);
  c.in.set(3, 599, -kInfinity);
  c.codes.set(3, 599, -kInfinity);
  c.in.set(2, 5, kInfinity); /* with a code of 0: no underflow either */
  Stats after;
  call = call_of(c, &after);
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  EXPECT_EQ(after.saturated, before.saturated + 3);
  EXPECT_EQ(after.underflow, before.underflow);
  EXPECT_EQ(after.signal, before.signal);
  EXPECT_EQ(after.noise, before.noise);
}

/* A scale that is NaN decodes to nothing: those elements are lost, but the rest is still told. */
TEST(QuantizeStats, elements_whose_scale_is_no_number_are_saturated) {
  Kernels kernels(2);
  Case c(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X32, 1, 64, 0, 0);
  *c.blocks.entry(0, 1) = 0xFF;
  Stats found;
  const octavo_quantize_stats call = call_of(c, &found);
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  EXPECT_GE(found.saturated, 32.0f);
  EXPECT_LT(found.saturated, 64.0f);
  EXPECT_TRUE(std::isfinite(found.signal) && std::isfinite(found.noise));
}

/* Whatever rule made the scale of a tensor's own amax, no element of it left the range. */
TEST(QuantizeStats, current_scaling_saturates_nothing) {
  Kernels kernels(2);
  for (const uint32_t rule : {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_POW2}) {
    for (unsigned seed = 0; seed < 200; ++seed) {
      Matrix in(OCTAVO_F32, 3, 50);
      in.fill(seed);
      Matrix codes(OCTAVO_E4M3FN, 3, 50);
      float scale_inv = 0;
      const octavo_scale scale = per_tensor(&scale_inv);
      auto cast = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
      cast.in = in.tensor();
      cast.out = codes.tensor();
      cast.out_scale_inv = &scale;
      cast.format_max = 448.0f;
      cast.rule = rule;
      ASSERT_EQ(kernels.quantize(cast), OCTAVO_OK) << kernels.host().last_text();
      Stats found;
      auto call = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
      call.in = in.tensor();
      call.codes = codes.tensor();
      call.scale_inv = &scale;
      call.saturated = &found.saturated;
      call.signal = &found.signal;
      call.noise = &found.noise;
      ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
      ASSERT_EQ(found.saturated, 0.0f) << "rule " << rule << ", seed " << seed;
      /* Three bits of mantissa: an error of at most 2^-4 of a normal value, so 24 dB and more. */
      ASSERT_GT(10 * std::log10(found.signal / found.noise), 24.0f);
    }
  }
}

TEST(QuantizeStats, adds_to_what_is_there_and_each_output_is_optional) {
  Kernels kernels(2);
  const Case c(OCTAVO_F32, OCTAVO_E5M2, OCTAVO_BLOCK_32X32, 40, 200, 3, 3);
  Stats alone;
  octavo_quantize_stats call = call_of(c, &alone);
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  Stats sum = {1, 2, 4, 8};
  call = call_of(c, &sum);
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  EXPECT_EQ(sum,
            (Stats{1 + alone.saturated, 2 + alone.underflow, 4 + alone.signal, 8 + alone.noise}));
  call.signal = call.noise = call.saturated = call.underflow = nullptr;
  EXPECT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  Stats some;
  call.underflow = &some.underflow;
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  EXPECT_EQ(some, (Stats{0, alone.underflow, 0, 0}));
}

TEST(QuantizeStats, nothing_in_nothing_counted) {
  Kernels kernels(2);
  const Case c(OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X128, 0, 64, 128, 0);
  Stats found = {1, 2, 3, 4};
  const octavo_quantize_stats call = call_of(c, &found);
  ASSERT_EQ(kernels.table->quantize_stats(kernels.ctx(), &call), OCTAVO_OK);
  EXPECT_EQ(found, (Stats{1, 2, 3, 4}));
}

class InvalidQuantizeStats : public testing::Test {
 protected:
  void expect_refused(octavo_status expected, const std::string &part) {
    const Stats untouched = stats_;
    EXPECT_EQ(kernels_.table->quantize_stats(kernels_.ctx(), &call_), expected);
    EXPECT_THAT(kernels_.host().last_text(), HasSubstr("quantize_stats: "));
    EXPECT_THAT(kernels_.host().last_text(), HasSubstr(part));
    EXPECT_EQ(stats_, untouched);
    call_ = call_of(case_, &stats_);
  }

  Kernels kernels_{0};
  Case case_{OCTAVO_F32, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X128, 4, 200, 0, 0};
  Stats stats_ = {1, 2, 3, 4};
  octavo_quantize_stats call_ = call_of(case_, &stats_);
};

TEST_F(InvalidQuantizeStats, tensors_and_scales) {
  octavo_tensor bad = *case_.codes.tensor();
  octavo_scale scale = *case_.blocks.get();
  call_.in = nullptr;
  expect_refused(OCTAVO_INVALID, "in is null");
  call_.in = case_.codes.tensor();
  expect_refused(OCTAVO_UNSUPPORTED, "in.dtype");
  call_.codes = case_.in.tensor();
  expect_refused(OCTAVO_UNSUPPORTED, "codes.dtype");
  call_.codes = &bad;
  bad.rows = 3;
  expect_refused(OCTAVO_INVALID, "codes.rows = 3; expected at least in.rows = 4");
  call_.codes = &bad;
  bad.rows = 4;
  bad.cols = 199;
  expect_refused(OCTAVO_INVALID, "codes.cols = 199; expected at least in.cols = 200");
  call_.scale_inv = nullptr;
  expect_refused(OCTAVO_INVALID, "scale_inv is null");
  call_.scale_inv = &scale;
  scale.granularity = OCTAVO_FLAT_256;
  expect_refused(OCTAVO_UNSUPPORTED, "scale_inv.granularity = 5");
  call_.scale_inv = &scale;
  scale.granularity = OCTAVO_PER_ROW;
  scale.stride = 0;
  expect_refused(OCTAVO_INVALID, "scale_inv.stride = 0");
  call_.scale_inv = &scale;
  scale.granularity = OCTAVO_BLOCK_1X128;
  scale.stride = 1;
  expect_refused(OCTAVO_INVALID, "scale_inv.stride = 1");
  call_.size = 16;
  expect_refused(OCTAVO_INVALID, "16 bytes");
  call_.noise = reinterpret_cast<float *>(reinterpret_cast<uintptr_t>(&stats_) + 1);
  expect_refused(OCTAVO_INVALID, "noise");
}

}  // namespace
}  // namespace octavo::test
