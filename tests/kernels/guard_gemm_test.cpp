/* gemm in hostile memory: every pair of operand dtypes, every output, layouts, block scales, and a
 * workspace of exactly the stated size that begins as NaN.
 */
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"

namespace octavo::test {
namespace {

constexpr uint32_t kAny[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2};
constexpr uint32_t kPlain[] = {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16};

struct GemmCase {
  uint32_t a;
  uint32_t b;
  uint32_t d;
  int64_t m;
  int64_t n;
  int64_t k;
  unsigned turn; /* bias, accumulate, gaps and scales rotate with it */
  uint32_t layout = 0;
  uint32_t a_blocks = OCTAVO_PER_TENSOR;
  uint32_t b_blocks = OCTAVO_PER_TENSOR;
};

std::string name_of(const GemmCase &g) {
  return "gemm " + dtype_text(g.a) + " x " + dtype_text(g.b) + " to " + dtype_text(g.d) + ", M " +
         std::to_string(g.m) + ", N " + std::to_string(g.n) + ", K " + std::to_string(g.k) +
         ", turn " + std::to_string(g.turn) + ", layout " + std::to_string(g.layout) + ", blocks " +
         std::to_string(g.a_blocks) + " and " + std::to_string(g.b_blocks);
}

void expect_gemm(const GemmCase &g) {
  const bool a_km = (g.layout & OCTAVO_GEMM_A_KM) != 0;
  const bool b_kn = (g.layout & OCTAVO_GEMM_B_KN) != 0;
  const bool has_blocks = g.a_blocks != OCTAVO_PER_TENSOR;
  const unsigned turn = g.turn;
  const int64_t gap = turn % 3;
  const Matrix a = Matrix(g.a, a_km ? g.k : g.m, a_km ? g.m : g.k, gap).fill(turn + 1, 2.0f);
  const Matrix b = Matrix(g.b, b_kn ? g.k : g.n, b_kn ? g.n : g.k, 2 * gap).fill(turn + 2, 2.0f);
  const Matrix d = Matrix(g.d, g.m, g.n, gap).fill(turn + 3);
  const Matrix bias = Matrix(kPlain[turn % 3], 1, g.n).fill(turn + 4);
  const Scales a_scales = Scales(g.a_blocks, g.m, g.k, gap).fill(5);
  const Scales b_scales = Scales(g.b_blocks, g.n, g.k, gap).fill(6);
  expect_guarded(name_of(g), [&](const Kernels &kernels, CallMemory &memory) {
    auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
    const octavo_tensor left = memory.input(a);
    const octavo_tensor right = memory.input(b);
    const octavo_tensor added = memory.input(bias);
    octavo_tensor to = memory.output(d);
    octavo_scale a_inv = {};
    octavo_scale b_inv = {};
    c.a = &left;
    c.b = &right;
    c.d = &to;
    c.layout = g.layout;
    if (turn % 2 == 0) c.bias = &added;
    c.bias_after = turn % 4 == 0 ? 1 : 0;
    c.accumulate = turn % 5 == 0 ? 1 : 0;
    if (has_blocks) {
      a_inv = memory.input(a_scales);
      b_inv = memory.input(b_scales);
    } else {
      a_inv = per_tensor(memory.input(std::vector<float>{0.37f}));
      b_inv = per_tensor(memory.input(std::vector<float>{1.9f}));
    }
    /* Turned operands are plain: no scale lies beside them. */
    if (has_blocks || (turn % 7 != 0 && !a_km)) c.a_scale_inv = &a_inv;
    if (has_blocks || (turn % 7 != 0 && !b_kn)) c.b_scale_inv = &b_inv;
    uint64_t bytes = 0;
    const octavo_status status = kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes);
    if (status != OCTAVO_OK) return status;
    c.workspace = memory.workspace(bytes);
    memory.seal();
    return kernels.table->gemm(kernels.ctx(), &c);
  });
}

TEST(GuardGemm, every_dtype_of_operands_and_output) {
  unsigned turn = 0;
  for (const uint32_t a : kAny) {
    for (const uint32_t b : kAny) {
      for (const uint32_t d : kPlain) {
        ASSERT_NO_FATAL_FAILURE(expect_gemm({a, b, d, 1 + turn / 3 % 4, 65, 63, turn}));
        ASSERT_NO_FATAL_FAILURE(expect_gemm({a, b, d, 17, 15, 217, turn + 5}));
        turn += 11;
      }
    }
  }
}

/* Codes, bf16 and f32: the three families of inner loops. */
TEST(GuardGemm, every_size) {
  unsigned turn = 0;
  for (const int64_t m : kGuardSizes) {
    for (const int64_t n : kGuardSizes) {
      for (const int64_t k : kGuardSizes) {
        const uint32_t d = kPlain[turn / 3 % 3];
        const uint32_t codes = turn % 4 == 0 ? OCTAVO_E5M2 : OCTAVO_E4M3FN;
        const uint32_t plain = turn % 4 == 1 ? OCTAVO_F32 : OCTAVO_BF16;
        ASSERT_NO_FATAL_FAILURE(expect_gemm({codes, OCTAVO_E4M3FN, d, m, n, k, turn}));
        ASSERT_NO_FATAL_FAILURE(expect_gemm({plain, plain, d, m, n, k, turn + 5}));
        turn += 11;
      }
    }
  }
}

/* Few rows are a path of their own, and so are the sizes around one tile. */
TEST(GuardGemm, few_rows_and_every_length_of_k) {
  unsigned turn = 0;
  for (int64_t m = 1; m <= 14; ++m) {
    for (const int64_t n : {1, 17, 33, 64}) {
      ASSERT_NO_FATAL_FAILURE(
          expect_gemm({OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_BF16, m, n, 130, turn++}));
      ASSERT_NO_FATAL_FAILURE(
          expect_gemm({OCTAVO_BF16, OCTAVO_BF16, OCTAVO_F32, m, n, 128, turn++}));
    }
  }
  for (int64_t k = 1; k <= 130; ++k) {
    const int64_t m = k % 2 == 0 ? 2 : 13;
    ASSERT_NO_FATAL_FAILURE(
        expect_gemm({OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_BF16, m, 33, k, turn++}));
    ASSERT_NO_FATAL_FAILURE(expect_gemm({OCTAVO_BF16, OCTAVO_BF16, OCTAVO_BF16, m, 33, k, turn++}));
    ASSERT_NO_FATAL_FAILURE(expect_gemm({OCTAVO_F16, OCTAVO_F32, OCTAVO_F16, m, 33, k, turn++}));
  }
}

/* A K that no block of a cache holds. */
TEST(GuardGemm, a_long_k) {
  unsigned turn = 0;
  for (const int64_t k : {1024, 4096, 5003}) {
    for (const int64_t m : {1, 6, 29}) {
      ASSERT_NO_FATAL_FAILURE(
          expect_gemm({OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_BF16, m, 70, k, turn++}));
      ASSERT_NO_FATAL_FAILURE(
          expect_gemm({OCTAVO_BF16, OCTAVO_BF16, OCTAVO_BF16, m, 70, k, turn++}));
    }
  }
}

/* More rows than have room for their sums where K is cut into parts. */
TEST(GuardGemm, many_rows_and_a_long_k) {
  ASSERT_NO_FATAL_FAILURE(
      expect_gemm({OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_BF16, 1031, 33, 2051, 1}));
  ASSERT_NO_FATAL_FAILURE(expect_gemm({OCTAVO_BF16, OCTAVO_BF16, OCTAVO_F32, 1031, 33, 2051, 2}));
}

TEST(GuardGemm, operands_that_lie_the_other_way_round) {
  unsigned turn = 0;
  for (const uint32_t layout : {1u, 2u, 3u}) {
    for (const uint32_t a : kPlain) {
      for (const uint32_t b : kPlain) {
        for (const int64_t m : {1, 17, 65}) {
          for (const int64_t n : {15, 63}) {
            for (const int64_t k : {1, 17, 217}) {
              ASSERT_NO_FATAL_FAILURE(expect_gemm({a, b, kPlain[turn % 3], m, n, k, turn, layout}));
              ++turn;
            }
          }
        }
      }
    }
  }
  for (const uint32_t codes : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const int64_t k : kGuardSizes) {
      ASSERT_NO_FATAL_FAILURE(
          expect_gemm({codes, OCTAVO_BF16, OCTAVO_BF16, 33, 65, k, turn++, OCTAVO_GEMM_B_KN}));
      ASSERT_NO_FATAL_FAILURE(
          expect_gemm({OCTAVO_BF16, codes, OCTAVO_BF16, 33, 65, k, turn++, OCTAVO_GEMM_A_KM}));
    }
  }
}

TEST(GuardGemm, block_scales) {
  constexpr uint32_t kPairs[][2] = {
      {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X128},   {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
      {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_1X128}, {OCTAVO_BLOCK_128X128, OCTAVO_BLOCK_128X128},
      {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},     {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32},
      {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_1X32},    {OCTAVO_BLOCK_32X32, OCTAVO_BLOCK_32X32}};
  unsigned turn = 0;
  for (const auto &pair : kPairs) {
    for (const int64_t m : {1, 5, 17, 217}) {
      for (const int64_t n : {1, 15, 65}) {
        for (const int64_t k : {1, 17, 65, 128, 217, 385}) {
          const uint32_t a = turn % 2 == 0 ? OCTAVO_E4M3FN : OCTAVO_E5M2;
          const uint32_t b = turn % 3 == 0 ? OCTAVO_E5M2 : OCTAVO_E4M3FN;
          ASSERT_NO_FATAL_FAILURE(
              expect_gemm({a, b, kPlain[turn % 3], m, n, k, turn, 0, pair[0], pair[1]}));
          ++turn;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
