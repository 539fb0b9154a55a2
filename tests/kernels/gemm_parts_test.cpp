/* gemm where K is longer than the part of it that is packed at once, M longer than what keeps its
 * sums in between, or M so small that nothing is packed: bit for bit the baseline level, whose
 * products gemm_test.cpp compares with the triple loop.
 */
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

struct Shape {
  int64_t m;
  int64_t n;
  int64_t k;
};

/* Around 2048 of K; 1020 rows and one more at K 2049; up to 8 rows and one more. */
constexpr Shape kShapes[] = {{3, 70, 2047},  {13, 33, 2048}, {1033, 40, 2049}, {9, 65, 4097},
                             {25, 31, 6200}, {8, 64, 5000},  {1, 97, 4095}};

octavo_gemm call_of(const Matrix &a, const Matrix &b, Matrix *d) {
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = a.tensor();
  c.b = b.tensor();
  c.d = d->tensor();
  return c;
}

void expect_equal_on_all_levels(const octavo_gemm &call, const Matrix &start) {
  octavo_gemm c = call;
  Matrix expected = start;
  c.d = expected.tensor();
  Kernels baseline(0, "baseline");
  ASSERT_EQ(baseline.gemm(c), OCTAVO_OK) << baseline.host().last_text();
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 3}) {
      Kernels kernels(threads, level);
      Matrix found = start;
      c.d = found.tensor();
      ASSERT_EQ(kernels.gemm(c), OCTAVO_OK) << kernels.host().last_text();
      ASSERT_EQ(found.data(), expected.data())
          << level << ", " << threads << " threads, " << c.a->rows << " x " << c.b->rows << " x "
          << c.a->cols;
    }
  }
}

TEST(GemmParts, codes) {
  for (const Shape &s : kShapes) {
    Matrix a(OCTAVO_E4M3FN, s.m, s.k, 3);
    Matrix b(OCTAVO_E5M2, s.n, s.k);
    Matrix d(OCTAVO_BF16, s.m, s.n, 1);
    octavo_gemm c = call_of(a.fill(1, 3.0f), b.fill(2, 3.0f), &d.fill(3));
    const float scale_inv = 0.3f;
    const octavo_scale scale = per_tensor(&scale_inv);
    c.a_scale_inv = &scale;
    c.accumulate = 1;
    ASSERT_NO_FATAL_FAILURE(expect_equal_on_all_levels(c, d));
  }
}

/* Every other panel of b and some rows of a hold values whose products leave fp32's range. */
TEST(GemmParts, bf16_with_and_without_extreme_values) {
  for (const Shape &s : kShapes) {
    for (const uint32_t b_dtype : {OCTAVO_BF16, OCTAVO_E4M3FN}) {
      Matrix a(OCTAVO_BF16, s.m, s.k);
      Matrix b(b_dtype, s.n, s.k, 5);
      Matrix d(OCTAVO_F32, s.m, s.n);
      a.fill(4);
      b.fill(5);
      ASSERT_NO_FATAL_FAILURE(expect_equal_on_all_levels(call_of(a, b, &d), d));
      for (int64_t row = 0; row < s.m; row += 14) a.set(row, row % s.k, 0x1.02p-120f);
      for (int64_t row = 32; row < s.n; row += 64) b.set(row, row % s.k, 0x1.0p-9f);
      ASSERT_NO_FATAL_FAILURE(expect_equal_on_all_levels(call_of(a, b, &d), d));
    }
  }
}

struct BlockScales {
  std::vector<float> values;
  octavo_scale scale;

  BlockScales(int64_t rows, int64_t k, uint32_t granularity) {
    const int64_t stride = (k + 127) / 128;
    for (int64_t i = 0; i < rows * stride; ++i) {
      values.push_back(0.25f + 0.01f * static_cast<float>(i % 89));
    }
    scale = OCTAVO_SCALE(values.data(), stride, OCTAVO_F32, granularity);
  }
};

TEST(GemmParts, block_scales) {
  for (const Shape &s : kShapes) {
    Matrix a(OCTAVO_E4M3FN, s.m, s.k);
    Matrix b(OCTAVO_E4M3FN, s.n, s.k, 1);
    Matrix d(OCTAVO_F32, s.m, s.n);
    octavo_gemm c = call_of(a.fill(6), b.fill(7), &d);
    const BlockScales a_scales(s.m, s.k, OCTAVO_BLOCK_1X128);
    const BlockScales b_scales((s.n + 127) / 128, s.k, OCTAVO_BLOCK_128X128);
    c.a_scale_inv = &a_scales.scale;
    c.b_scale_inv = &b_scales.scale;
    ASSERT_NO_FATAL_FAILURE(expect_equal_on_all_levels(c, d));
  }
}

TEST(GemmParts, mx_scales) {
  for (const Shape &s : {Shape{5, 33, 2080}, Shape{14, 31, 4100}}) {
    Matrix a(OCTAVO_E4M3FN, s.m, s.k);
    Matrix b(OCTAVO_E4M3FN, s.n, s.k);
    Matrix d(OCTAVO_F32, s.m, s.n);
    octavo_gemm c = call_of(a.fill(8), b.fill(9), &d);
    const int64_t stride = (s.k + 31) / 32;
    std::vector<uint8_t> exponents;
    for (int64_t i = 0; i < (s.m + s.n) * stride; ++i) {
      exponents.push_back(static_cast<uint8_t>(120 + i % 13));
    }
    const octavo_scale a_scale =
        OCTAVO_SCALE(exponents.data(), stride, OCTAVO_E8M0FNU, OCTAVO_BLOCK_1X32);
    const octavo_scale b_scale =
        OCTAVO_SCALE(exponents.data() + s.m * stride, stride, OCTAVO_E8M0FNU, OCTAVO_BLOCK_1X32);
    c.a_scale_inv = &a_scale;
    c.b_scale_inv = &b_scale;
    ASSERT_NO_FATAL_FAILURE(expect_equal_on_all_levels(c, d));
  }
}

TEST(GemmParts, operands_that_lie_the_other_way_round) {
  for (const Shape &s : kShapes) {
    if (s.m > 100) continue; /* the same code for any M */
    Matrix a(OCTAVO_BF16, s.k, s.m, 2);
    Matrix b(OCTAVO_BF16, s.k, s.n, 1);
    Matrix d(OCTAVO_F32, s.m, s.n);
    octavo_gemm c = call_of(a.fill(10), b.fill(11), &d);
    c.layout = OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN;
    ASSERT_NO_FATAL_FAILURE(expect_equal_on_all_levels(c, d));
  }
}

}  // namespace
}  // namespace octavo::test
