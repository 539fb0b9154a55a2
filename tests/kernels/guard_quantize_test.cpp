/* quantize with one scale per tensor in hostile memory: every dtype, every choice of outputs, rows
 * with gaps, and all lengths of a row up to two vectors, so that a row begins and ends at every
 * alignment.
 */
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/guard_case.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kCodes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
constexpr uint32_t kRules[] = {OCTAVO_RULE_GIVEN, OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2,
                               OCTAVO_RULE_RECIPROCAL, OCTAVO_RULE_MSAMP};

enum Outputs { kOut = 1, kOutT = 2 };

struct QuantizeCase {
  uint32_t in;
  uint32_t out;
  int64_t rows;
  int64_t cols;
  int outputs;
  uint32_t rule;
  int64_t padding; /* rows and columns that out has more than in */
  int64_t gap;     /* elements between the end of a row and the next one */
  bool is_scaled;  /* in_scale_inv */
  bool has_counter;
  bool keeps_positive;
  bool measures;   /* amax and nonfinite */
  bool is_special; /* holds an Inf and a NaN, where the dtype has them */
};

std::string name_of(const QuantizeCase &q) {
  return "quantize " + dtype_text(q.in) + " to " + dtype_text(q.out) + ", " +
         shape_text(q.rows, q.cols) + ", outputs " + std::to_string(q.outputs) + ", rule " +
         std::to_string(q.rule) + ", padding " + std::to_string(q.padding) + ", gap " +
         std::to_string(q.gap) + (q.measures ? ", measured" : "");
}

void expect_quantize(const QuantizeCase &q) {
  Matrix in(q.in, q.rows, q.cols, q.gap);
  in.fill(static_cast<unsigned>(q.rows * 1000 + q.cols), 3.0f);
  if (q.is_special) {
    in.set(0, q.cols - 1, std::numeric_limits<float>::infinity());
    in.set(q.rows - 1, 0, std::numeric_limits<float>::quiet_NaN());
  }
  const Matrix out(q.out, q.rows + q.padding, q.cols + q.padding, q.gap);
  const Matrix out_t(q.out, q.cols + q.padding, q.rows + q.padding, q.gap);
  expect_guarded(name_of(q), [&](const Kernels &kernels, CallMemory &memory) {
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    const octavo_tensor t = memory.input(in);
    octavo_tensor to = {};
    octavo_tensor to_t = {};
    c.in = &t;
    if ((q.outputs & kOut) != 0) {
      to = memory.output(out);
      c.out = &to;
    }
    if ((q.outputs & kOutT) != 0) {
      to_t = memory.output(out_t);
      c.out_t = &to_t;
    }
    const octavo_scale inv = per_tensor(memory.output(std::vector<float>{-1.0f}));
    if (q.outputs != 0) c.out_scale_inv = &inv;
    if (q.is_scaled) c.in_scale_inv = memory.input(std::vector<float>{0.37f});
    c.scale = memory.input(std::vector<float>{1.7f});
    if (q.has_counter) c.counter = memory.input(std::vector<float>{q.rows % 2 == 0 ? 3.0f : 16.0f});
    if (q.measures) {
      c.amax = memory.output(std::vector<float>{0.25f});
      c.nonfinite = memory.output(std::vector<float>{0.0f});
    }
    c.format_max = q.out == OCTAVO_E4M3FN ? kMaxE4m3 : q.out == OCTAVO_E5M2 ? kMaxE5m2 : kMaxF16;
    c.window = 16.0f;
    c.rule = q.rule;
    c.flags = q.keeps_positive ? OCTAVO_QUANTIZE_KEEP_POSITIVE : 0;
    memory.seal();
    return kernels.table->quantize(kernels.ctx(), &c);
  });
}

TEST(GuardQuantize, every_dtype_output_and_size) {
  unsigned turn = 0; /* options rotate, so that each meets every size */
  for (const uint32_t in : kAny) {
    for (const uint32_t out : kCodes) {
      for (const int64_t rows : kGuardSizes) {
        for (const int64_t cols : kGuardSizes) {
          const int outputs = 1 + static_cast<int>(turn % 3);
          const QuantizeCase q = {in,
                                  out,
                                  rows,
                                  cols,
                                  outputs,
                                  kRules[turn % 5],
                                  turn % 7 == 0 ? 16 : 0,
                                  turn % 4 == 0 ? 0 : 3,
                                  turn % 2 == 0,
                                  turn % 11 == 0,
                                  turn % 6 == 0,
                                  turn % 3 != 0,
                                  turn % 13 == 0};
          ASSERT_NO_FATAL_FAILURE(expect_quantize(q));
          ++turn;
        }
      }
    }
  }
}

/* Rows that are in no vector's size, at every alignment of their two ends. */
TEST(GuardQuantize, every_length_of_a_row) {
  for (const uint32_t in : kPlain) {
    for (const uint32_t out : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      for (int64_t cols = 1; cols <= 130; ++cols) {
        const bool with_t = cols % 2 == 0;
        const QuantizeCase q = {in,
                                out,
                                2,
                                cols,
                                with_t ? kOut | kOutT : kOut,
                                OCTAVO_RULE_GIVEN,
                                0,
                                1,
                                false,
                                false,
                                false,
                                cols % 3 == 0,
                                false};
        ASSERT_NO_FATAL_FAILURE(expect_quantize(q));
      }
    }
  }
}

/* Columns likewise: rows of out_t. */
TEST(GuardQuantize, every_length_of_a_column) {
  for (const uint32_t in : kPlain) {
    for (int64_t rows = 1; rows <= 130; ++rows) {
      const QuantizeCase q = {in,   OCTAVO_E4M3FN, rows,  3 + rows % 3, kOutT, OCTAVO_RULE_QUOTIENT,
                              0,    rows % 2,      false, false,        false, true,
                              false};
      ASSERT_NO_FATAL_FAILURE(expect_quantize(q));
    }
  }
}

/* Rows longer than a segment of the kernels. */
TEST(GuardQuantize, long_rows_and_columns) {
  for (const uint32_t in : kPlain) {
    for (const uint32_t out : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      for (const int64_t length : {255, 257, 511, 513, 1031}) {
        const QuantizeCase rows = {in,   out, 3,     length, kOut | kOutT, OCTAVO_RULE_QUOTIENT,
                                   0,    1,   false, false,  false,        true,
                                   false};
        ASSERT_NO_FATAL_FAILURE(expect_quantize(rows));
        const QuantizeCase cols = {in,   out,   length, 5,    kOut | kOutT, OCTAVO_RULE_GIVEN, 0, 1,
                                   true, false, false,  true, false};
        ASSERT_NO_FATAL_FAILURE(expect_quantize(cols));
      }
    }
  }
}

TEST(GuardQuantize, measured_without_codes) {
  for (const uint32_t in : kAny) {
    for (const int64_t rows : kGuardSizes) {
      for (const int64_t cols : kGuardSizes) {
        const QuantizeCase q = {in,       OCTAVO_E4M3FN, rows,  cols,  0,    OCTAVO_RULE_GIVEN, 0,
                                rows % 3, false,         false, false, true, cols == 17};
        ASSERT_NO_FATAL_FAILURE(expect_quantize(q));
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
