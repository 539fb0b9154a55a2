/* gemm with one scale for each row of an operand: fl32(sum * fl32(a_scale * b_scale)), bit for bit
 * the triple loop, on every level.
 */
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

using ::testing::HasSubstr;

struct Product {
  Matrix a;
  Matrix b;
  Matrix d;
  std::vector<float> a_scales;
  std::vector<float> b_scales;
  float whole = 0.7f;
  octavo_scale a_scale;
  octavo_scale b_scale;
  octavo_gemm c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);

  Product(int64_t m, int64_t n, int64_t k, bool a_has_rows, bool b_has_rows)
      : a(OCTAVO_E4M3FN, m, k, 1), b(OCTAVO_E4M3FN, n, k), d(OCTAVO_F32, m, n, 2) {
    a.fill(1, 2.0f);
    b.fill(2, 2.0f);
    d.fill(3);
    for (int64_t i = 0; i < m; ++i) a_scales.push_back(0.1f + 0.3f * static_cast<float>(i % 7));
    for (int64_t i = 0; i < n; ++i) b_scales.push_back(1.9f - 0.1f * static_cast<float>(i % 11));
    a_scale = per_tensor(&whole);
    b_scale = per_tensor(&whole);
    if (a_has_rows) a_scale = OCTAVO_SCALE(a_scales.data(), 1, OCTAVO_F32, OCTAVO_PER_ROW);
    if (b_has_rows) b_scale = OCTAVO_SCALE(b_scales.data(), 1, OCTAVO_F32, OCTAVO_PER_ROW);
    if (!a_has_rows) a_scales.assign(static_cast<size_t>(m), whole);
    if (!b_has_rows) b_scales.assign(static_cast<size_t>(n), whole);
    c.a = a.tensor();
    c.b = b.tensor();
    c.d = d.tensor();
    c.a_scale_inv = &a_scale;
    c.b_scale_inv = &b_scale;
  }

  Matrix expected() const {
    Matrix result = d;
    for (int64_t row = 0; row < a.rows(); ++row) {
      for (int64_t col = 0; col < b.rows(); ++col) {
        float sum = 0.0f;
        for (int64_t k = 0; k < a.cols(); ++k) sum = sum + a.get(row, k) * b.get(col, k);
        const float scale = a_scales[static_cast<size_t>(row)] * b_scales[static_cast<size_t>(col)];
        result.set(row, col, sum * scale);
      }
    }
    return result;
  }
};

TEST(GemmRows, equals_the_triple_loop) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const int64_t m : {1, 8, 9, 29}) {
      for (const int64_t n : {1, 33, 70}) {
        for (const int64_t k : {1, 65, 130}) {
          for (const bool a_has_rows : {false, true}) {
            Product p(m, n, k, a_has_rows, true);
            const Matrix expected = p.expected();
            ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK) << kernels.host().last_text();
            ASSERT_NO_FATAL_FAILURE(expect_equal(p.d, expected)) << level;
          }
        }
      }
    }
  }
}

TEST(GemmRows, scales_may_lie_apart) {
  Kernels kernels;
  Product p(5, 3, 40, true, false);
  const Matrix expected = p.expected();
  std::vector<float> apart(5 * 4, NAN);
  for (size_t row = 0; row < 5; ++row) apart[row * 4] = p.a_scales[row];
  p.a_scale.data = apart.data();
  p.a_scale.stride = 4;
  ASSERT_EQ(kernels.gemm(p.c), OCTAVO_OK) << kernels.host().last_text();
  EXPECT_NO_FATAL_FAILURE(expect_equal(p.d, expected));
}

TEST(GemmRows, malformed_scales_are_refused) {
  Kernels kernels;
  Product p(5, 3, 40, true, true);
  const std::vector<uint8_t> before = p.d.data();
  p.a_scale.stride = 0;
  EXPECT_EQ(kernels.gemm(p.c), OCTAVO_INVALID);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("a_scale_inv.stride = 0; expected at least 1"));
  p.a_scale.stride = 1;
  p.b_scale.dtype = OCTAVO_E8M0FNU;
  EXPECT_EQ(kernels.gemm(p.c), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("b_scale_inv.dtype = 0x80e"));
  p.b_scale.dtype = OCTAVO_F32;
  p.b_scale.data = nullptr;
  EXPECT_EQ(kernels.gemm(p.c), OCTAVO_INVALID);
  EXPECT_THAT(kernels.host().last_text(), HasSubstr("the aligned address of 3 scales"));
  EXPECT_EQ(p.d.data(), before);
}

}  // namespace
}  // namespace octavo::test
