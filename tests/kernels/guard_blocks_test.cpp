/* quantize, dequantize and quantize_stats with blocks of scales, those of optimizer states
 * included, in hostile memory.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"
#include "tests/kernels/state_oracle.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

uint32_t rule_of(uint32_t granularity, uint32_t out, unsigned turn) {
  if (is_mx(granularity)) return turn % 2 == 0 ? OCTAVO_RULE_MX_UP : OCTAVO_RULE_MX_FLOOR;
  constexpr uint32_t kRules[] = {OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2, OCTAVO_RULE_DEEPGEMM,
                                 OCTAVO_RULE_DEEPGEMM_POW2};
  return kRules[turn % (out == OCTAVO_E4M3FN ? 4 : 2)];
}

void expect_blocks(uint32_t in_dtype, uint32_t out_dtype, uint32_t granularity,
                   uint32_t granularity_t, int64_t rows, int64_t cols, unsigned turn) {
  const int outputs = 1 + static_cast<int>(turn % 3);
  const int64_t gap = turn % 4;
  const int64_t padding = turn % 5 == 0 ? 33 : 0;
  const Matrix in = Matrix(in_dtype, rows, cols, gap).fill(turn, 3.0f);
  const Matrix out(out_dtype, rows + padding, cols + padding, gap);
  const Matrix out_t(out_dtype, cols + padding, rows + padding, gap);
  const Scales scales(granularity, out.rows(), out.cols(), gap);
  const Scales scales_t(granularity_t, out_t.rows(), out_t.cols(), gap);
  const std::string name = "quantize " + dtype_text(in_dtype) + " to " + dtype_text(out_dtype) +
                           ", blocks " + std::to_string(granularity) + " and " +
                           std::to_string(granularity_t) + ", " + shape_text(rows, cols) +
                           ", turn " + std::to_string(turn);
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
      inv = memory.output(scales);
      c.out = &to;
      c.out_scale_inv = &inv;
    }
    if ((outputs & 2) != 0) {
      to_t = memory.output(out_t);
      inv_t = memory.output(scales_t);
      c.out_t = &to_t;
      c.out_t_scale_inv = &inv_t;
    }
    if (turn % 2 == 0) c.in_scale_inv = memory.input(std::vector<float>{0.37f});
    if (turn % 3 != 0) {
      c.amax = memory.output(std::vector<float>{0.25f});
      c.nonfinite = memory.output(std::vector<float>{0.0f});
    }
    c.format_max = out_dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
    c.rule = rule_of(granularity, out_dtype, turn);
    c.flags = turn % 6 == 0 ? OCTAVO_QUANTIZE_KEEP_POSITIVE : 0;
    memory.seal();
    return kernels.table->quantize(kernels.ctx(), &c);
  });
}

TEST(GuardBlocks, quantize_every_granularity_and_size) {
  constexpr uint32_t kPairs[][2] = {
      {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128},     {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
      {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_128X128}, {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},
      {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_1X32},      {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_32X32}};
  unsigned turn = 0;
  for (const auto &pair : kPairs) {
    for (const int64_t rows : kGuardSizes) {
      for (const int64_t cols : kGuardSizes) {
        for (int i = 0; i < 4; ++i) {
          const uint32_t out = turn % 3 == 0 ? OCTAVO_E5M2 : OCTAVO_E4M3FN;
          ASSERT_NO_FATAL_FAILURE(
              expect_blocks(kAny[turn % 5], out, pair[0], pair[1], rows, cols, turn));
          ++turn;
        }
      }
    }
  }
}

TEST(GuardBlocks, quantize_every_length_of_a_row) {
  unsigned turn = 1;
  for (const uint32_t granularity : kBlockGranularities) {
    for (int64_t cols = 1; cols <= 140; ++cols) {
      ASSERT_NO_FATAL_FAILURE(expect_blocks(kPlain[cols % 3], OCTAVO_E4M3FN, granularity,
                                            granularity, 2, cols, turn++));
    }
  }
}

TEST(GuardBlocks, dequantize_every_granularity_and_size) {
  unsigned turn = 0;
  for (const uint32_t granularity : kBlockGranularities) {
    for (const uint32_t in_dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      for (const int64_t rows : kGuardSizes) {
        for (const int64_t cols : kGuardSizes) {
          const int64_t gap = turn % 3;
          const Matrix in = Matrix(in_dtype, rows, cols, gap).fill(turn, 3.0f);
          const Matrix out = Matrix(kPlain[turn % 3], rows, cols, gap).fill(turn + 1);
          const Scales scales = Scales(granularity, rows, cols, gap).fill(turn);
          expect_guarded_dequantize("dequantize blocks " + std::to_string(granularity) + ", " +
                                        shape_text(rows, cols) + ", turn " + std::to_string(turn),
                                    in, out, turn % 2,
                                    [&](CallMemory &memory) { return memory.input(scales); });
          if (HasFatalFailure()) return;
          ++turn;
        }
      }
    }
  }
}

TEST(GuardBlocks, quantize_stats_every_granularity_and_size) {
  unsigned turn = 0;
  for (const uint32_t granularity : kBlockGranularities) {
    for (const int64_t rows : kGuardSizes) {
      for (const int64_t cols : kGuardSizes) {
        const int64_t gap = turn % 3;
        const Matrix in = Matrix(kPlain[turn % 3], rows, cols, gap).fill(turn, 3.0f);
        const Matrix codes =
            Matrix(turn % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2, rows + gap, cols + gap, gap)
                .fill(turn, 3.0f);
        const Scales scales = Scales(granularity, codes.rows(), codes.cols(), gap).fill(turn);
        expect_guarded("quantize_stats blocks " + std::to_string(granularity) + ", " +
                           shape_text(rows, cols) + ", turn " + std::to_string(turn),
                       [&](const Kernels &kernels, CallMemory &memory) {
                         auto c = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS);
                         const octavo_tensor t = memory.input(in);
                         const octavo_tensor u = memory.input(codes);
                         const octavo_scale inv = memory.input(scales);
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
        ++turn;
      }
    }
  }
}

/* Blocks of a state run over memory, so only the number of elements counts; it is short of, at and
 * beyond the ends of blocks and segments. */
TEST(GuardBlocks, states_written_and_read) {
  unsigned turn = 0;
  for (const uint32_t granularity : kStateGroups) {
    for (const int64_t rows : {1, 3, 17, 65}) {
      for (const int64_t cols : {1, 15, 17, 63, 65, 128, 217, 256, 257}) {
        const Matrix in = Matrix(kAny[turn % 5], rows, cols).fill(turn, 0.1f);
        const Matrix codes = Matrix(OCTAVO_E4M3FN, rows, cols).fill(turn, 0.1f);
        const Matrix back = Matrix(kPlain[turn % 3], rows, cols).fill(turn + 1);
        std::vector<float> scales(static_cast<size_t>(scale_count(granularity, rows * cols)));
        for (size_t i = 0; i < scales.size(); ++i) {
          scales[i] = 0.5f + 0.25f * static_cast<float>(i % 7);
        }
        const std::string text = " state " + std::to_string(granularity) + ", " +
                                 shape_text(rows, cols) + ", turn " + std::to_string(turn);
        expect_guarded("quantize" + text, [&](const Kernels &kernels, CallMemory &memory) {
          auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
          const octavo_tensor t = memory.input(in);
          octavo_tensor to = memory.output(Matrix(OCTAVO_E4M3FN, rows, cols));
          const octavo_scale inv = OCTAVO_SCALE(memory.output(scales), 0, OCTAVO_F32, granularity);
          c.in = &t;
          c.out = &to;
          c.out_scale_inv = &inv;
          c.amax = memory.output(std::vector<float>{0.0f});
          c.nonfinite = memory.output(std::vector<float>{0.0f});
          c.flags = turn % 2 == 0 ? OCTAVO_QUANTIZE_KEEP_POSITIVE : 0;
          memory.seal();
          return kernels.table->quantize(kernels.ctx(), &c);
        });
        if (HasFatalFailure()) return;
        expect_guarded("dequantize" + text, [&](const Kernels &kernels, CallMemory &memory) {
          auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
          const octavo_tensor from = memory.input(codes);
          octavo_tensor to = memory.output(back);
          const octavo_scale inv =
              OCTAVO_SCALE(const_cast<float *>(memory.input(scales)), 0, OCTAVO_F32, granularity);
          c.in = &from;
          c.out = &to;
          c.scale_inv = &inv;
          c.accumulate = turn % 2;
          memory.seal();
          return kernels.table->dequantize(kernels.ctx(), &c);
        });
        if (HasFatalFailure()) return;
        ++turn;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
