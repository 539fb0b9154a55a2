/* quantize, dequantize and gemm with one scale per row in hostile memory; scales lie side by side
 * or apart, and what lies between them stays.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kCodes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};
constexpr uint32_t kRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_RECIPROCAL};

/* One scale for each of `rows` rows, `gap` floats apart. */
Matrix row_scales(int64_t rows, int64_t gap) {
  Matrix m(OCTAVO_F32, rows, 1, gap);
  for (int64_t row = 0; row < rows; ++row) m.set(row, 0, 0.1f + 0.3f * static_cast<float>(row % 7));
  return m;
}

octavo_scale per_row(const octavo_tensor &t) {
  return OCTAVO_SCALE(t.data, t.stride, OCTAVO_F32, OCTAVO_PER_ROW);
}

void expect_quantize(uint32_t in_dtype, uint32_t out_dtype, int64_t rows, int64_t cols,
                     unsigned turn) {
  const int outputs = 1 + static_cast<int>(turn % 3);
  const int64_t gap = turn % 4;
  const int64_t padding = turn % 5 == 0 ? 16 : 0;
  const Matrix in = Matrix(in_dtype, rows, cols, gap).fill(turn, 3.0f);
  const Matrix out(out_dtype, rows + padding, cols + padding, gap);
  const Matrix out_t(out_dtype, cols + padding, rows + padding, gap);
  const std::string name = "quantize rows, " + dtype_text(in_dtype) + " to " +
                           dtype_text(out_dtype) + ", " + shape_text(rows, cols) + ", turn " +
                           std::to_string(turn);
  expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
    auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
    const octavo_tensor t = memory.input(in);
    octavo_tensor to = {};
    octavo_tensor to_t = {};
    octavo_scale inv = {};
    octavo_scale inv_t = {};
    c.in = &t;
    if ((outputs & 1) != 0) {
      to = memory.output(out);
      inv = per_row(memory.output(row_scales(out.rows(), gap)));
      c.out = &to;
      c.out_scale_inv = &inv;
    }
    if ((outputs & 2) != 0) {
      to_t = memory.output(out_t);
      inv_t = per_row(memory.output(row_scales(out_t.rows(), gap)));
      c.out_t = &to_t;
      c.out_t_scale_inv = &inv_t;
    }
    if (turn % 2 == 0) c.in_scale_inv = memory.input(std::vector<float>{0.37f});
    if (turn % 3 != 0) {
      c.amax = memory.output(std::vector<float>{0.25f});
      c.nonfinite = memory.output(std::vector<float>{0.0f});
    }
    c.format_max = out_dtype == OCTAVO_E4M3FN ? kMaxE4m3
                   : out_dtype == OCTAVO_E5M2 ? kMaxE5m2
                                              : kMaxF16;
    c.rule = kRules[turn / 3 % 3];
    c.flags = turn % 7 == 0 ? OCTAVO_QUANTIZE_KEEP_POSITIVE : 0;
    memory.seal();
    return kernels.table->quantize(kernels.ctx(), &c);
  });
}

TEST(GuardRows, quantize_every_dtype_and_size) {
  unsigned turn = 0;
  for (const uint32_t in : kAny) {
    for (const uint32_t out : kCodes) {
      for (const int64_t rows : kGuardSizes) {
        for (const int64_t cols : kGuardSizes) {
          ASSERT_NO_FATAL_FAILURE(expect_quantize(in, out, rows, cols, turn++));
        }
      }
    }
  }
}

TEST(GuardRows, quantize_every_length) {
  unsigned turn = 1;
  for (int64_t length = 1; length <= 130; ++length) {
    ASSERT_NO_FATAL_FAILURE(expect_quantize(kPlain[length % 3], OCTAVO_E4M3FN, 2, length, turn++));
    ASSERT_NO_FATAL_FAILURE(expect_quantize(kPlain[length % 3], OCTAVO_E5M2, length, 2, turn++));
  }
}

TEST(GuardRows, dequantize_every_dtype_and_size) {
  unsigned turn = 0;
  for (const uint32_t in_dtype : kCodes) {
    for (const uint32_t out_dtype : kPlain) {
      for (const int64_t rows : kGuardSizes) {
        for (const int64_t cols : kGuardSizes) {
          const int64_t gap = turn % 3;
          const Matrix in = Matrix(in_dtype, rows, cols, gap).fill(turn, 3.0f);
          const Matrix out = Matrix(out_dtype, rows, cols, gap).fill(turn + 1);
          expect_guarded_dequantize("dequantize rows, " + dtype_text(in_dtype) + " to " +
                                        dtype_text(out_dtype) + ", " + shape_text(rows, cols),
                                    in, out, turn % 2, [&](CallMemory &memory) {
                                      return per_row(memory.input(row_scales(rows, gap)));
                                    });
          if (HasFatalFailure()) return;
          ++turn;
        }
      }
    }
  }
}

TEST(GuardRows, gemm_every_size) {
  unsigned turn = 0;
  for (const int64_t m : kGuardSizes) {
    for (const int64_t n : kGuardSizes) {
      for (const int64_t k : {1, 17, 63, 217}) {
        const int64_t gap = turn % 3;
        const Matrix a =
            Matrix(turn % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2, m, k, gap).fill(turn, 2.0f);
        const Matrix b = Matrix(OCTAVO_E4M3FN, n, k, gap).fill(turn + 1, 2.0f);
        const Matrix d = Matrix(kPlain[turn / 3 % 3], m, n, gap).fill(turn + 2);
        expect_guarded("gemm rows, M " + std::to_string(m) + ", N " + std::to_string(n) + ", K " +
                           std::to_string(k) + ", turn " + std::to_string(turn),
                       [&](const Kernels &kernels, CallMemory &memory) {
                         auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
                         const octavo_tensor left = memory.input(a);
                         const octavo_tensor right = memory.input(b);
                         octavo_tensor to = memory.output(d);
                         /* Both, or one of them beside a scale of the whole tensor. */
                         octavo_scale a_inv = per_row(memory.input(row_scales(m, gap)));
                         octavo_scale b_inv = per_row(memory.input(row_scales(n, gap)));
                         const float *whole = memory.input(std::vector<float>{0.7f});
                         if (turn % 3 == 1) a_inv = per_tensor(whole);
                         if (turn % 3 == 2) b_inv = per_tensor(whole);
                         c.a = &left;
                         c.b = &right;
                         c.d = &to;
                         c.a_scale_inv = &a_inv;
                         c.b_scale_inv = &b_inv;
                         c.accumulate = turn % 5 == 0 ? 1 : 0;
                         uint64_t bytes = 0;
                         const octavo_status status =
                             kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes);
                         if (status != OCTAVO_OK) return status;
                         c.workspace = memory.workspace(bytes);
                         memory.seal();
                         return kernels.table->gemm(kernels.ctx(), &c);
                       });
        if (HasFatalFailure()) return;
        turn += 7;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
