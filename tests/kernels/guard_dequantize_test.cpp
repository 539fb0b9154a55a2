/* dequantize, compute_amax and quantize_stats with one scale per tensor in hostile memory.
 *
 * All lengths of a row up to two vectors, so that a row begins and ends at every alignment.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};
constexpr uint32_t kCodes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16};

void expect_dequantize(uint32_t in_dtype, uint32_t out_dtype, int64_t rows, int64_t cols,
                       int64_t gap, bool is_scaled, uint32_t accumulate) {
  const Matrix in = Matrix(in_dtype, rows, cols, gap).fill(static_cast<unsigned>(cols), 2.0f);
  const Matrix out = Matrix(out_dtype, rows, cols, gap).fill(9);
  const std::string name = "dequantize " + dtype_text(in_dtype) + " to " + dtype_text(out_dtype) +
                           ", " + shape_text(rows, cols) + ", gap " + std::to_string(gap);
  expect_guarded_dequantize(name, in, out, accumulate,
                            [&](CallMemory &memory) -> std::optional<octavo_scale> {
                              if (!is_scaled) return std::nullopt;
                              return per_tensor(memory.input(std::vector<float>{0.37f}));
                            });
}

TEST(GuardDequantize, every_dtype_and_size) {
  unsigned turn = 0;
  for (const uint32_t in : kAny) {
    for (const uint32_t out : kPlain) {
      for (const int64_t rows : kGuardSizes) {
        for (const int64_t cols : kGuardSizes) {
          ASSERT_NO_FATAL_FAILURE(
              expect_dequantize(in, out, rows, cols, turn % 3, turn % 2 == 0, turn % 5 == 0));
          ++turn;
        }
      }
    }
  }
}

TEST(GuardDequantize, every_length_of_a_row) {
  for (const uint32_t in : kAny) {
    for (int64_t cols = 1; cols <= 130; ++cols) {
      ASSERT_NO_FATAL_FAILURE(
          expect_dequantize(in, kPlain[cols % 3], 2, cols, 1, true, cols % 2 == 0 ? 1 : 0));
    }
  }
}

TEST(GuardDequantize, in_place) {
  for (const uint32_t dtype : kPlain) {
    for (const int64_t cols : kGuardSizes) {
      const Matrix both = Matrix(dtype, 17, cols, 1).fill(5);
      expect_guarded("dequantize in place, " + dtype_text(dtype) + ", " + shape_text(17, cols),
                     [&](const Kernels &kernels, CallMemory &memory) {
                       auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
                       octavo_tensor t = memory.output(both);
                       const octavo_scale inv = per_tensor(memory.input(std::vector<float>{0.37f}));
                       c.in = &t;
                       c.out = &t;
                       c.scale_inv = &inv;
                       memory.seal();
                       return kernels.table->dequantize(kernels.ctx(), &c);
                     });
      if (HasFatalFailure()) return;
    }
  }
}

void expect_amax(uint32_t dtype, int64_t rows, int64_t cols, int64_t gap) {
  const Matrix in = Matrix(dtype, rows, cols, gap).fill(static_cast<unsigned>(rows), 2.0f);
  const std::string name = "compute_amax " + dtype_text(dtype) + ", " + shape_text(rows, cols);
  expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
    auto c = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
    const octavo_tensor t = memory.input(in);
    const octavo_scale inv = per_tensor(memory.input(std::vector<float>{1.9f}));
    c.in = &t;
    if (cols % 2 == 0) c.in_scale_inv = &inv;
    c.amax = memory.output(std::vector<float>{0.01f});
    c.nonfinite = memory.output(std::vector<float>{0.0f});
    memory.seal();
    return kernels.table->compute_amax(kernels.ctx(), &c);
  });
}

TEST(GuardComputeAmax, every_dtype_and_size) {
  for (const uint32_t dtype : kAny) {
    for (const int64_t rows : kGuardSizes) {
      for (const int64_t cols : kGuardSizes) {
        ASSERT_NO_FATAL_FAILURE(expect_amax(dtype, rows, cols, rows % 4));
      }
    }
    for (int64_t cols = 1; cols <= 130; ++cols) {
      ASSERT_NO_FATAL_FAILURE(expect_amax(dtype, 1, cols, 0));
    }
  }
}

TEST(GuardQuantizeStats, every_dtype_and_size) {
  int64_t turn = 0;
  for (const uint32_t dtype : kPlain) {
    for (const uint32_t codes_dtype : kCodes) {
      for (const int64_t rows : kGuardSizes) {
        for (const int64_t cols : kGuardSizes) {
          const int64_t padding = turn++ % 3;
          const Matrix in = Matrix(dtype, rows, cols, padding).fill(1, 2.0f);
          const Matrix codes =
              Matrix(codes_dtype, rows + padding, cols + padding, padding).fill(1, 2.0f);
          expect_guarded("quantize_stats " + dtype_text(dtype) + " beside " +
                             dtype_text(codes_dtype) + ", " + shape_text(rows, cols),
                         [&](const Kernels &kernels, CallMemory &memory) {
                           auto c = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
                           const octavo_tensor t = memory.input(in);
                           const octavo_tensor u = memory.input(codes);
                           const octavo_scale inv =
                               per_tensor(memory.input(std::vector<float>{0.9f}));
                           c.in = &t;
                           c.codes = &u;
                           c.scale_inv = &inv;
                           for (float **sum : {&c.saturated, &c.underflow, &c.signal, &c.noise}) {
                             *sum = memory.output(std::vector<float>{1.0f});
                           }
                           memory.seal();
                           return kernels.table->quantize_stats(kernels.ctx(), &c);
                         });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
