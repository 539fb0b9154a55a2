/* gemm with OCTAVO_GEMM_A_KM and OCTAVO_GEMM_B_KN: bit for bit the product of explicit transposes.
 */
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

Matrix transpose(const Matrix &m) {
  Matrix result(m.dtype(), m.cols(), m.rows(), 2);
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t col = 0; col < m.cols(); ++col) result.set(col, row, m.get(row, col));
  }
  return result;
}

octavo_gemm call_of(const Matrix &a, const Matrix &b, Matrix *d, uint32_t layout) {
  auto c = make_call<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = a.tensor();
  c.b = b.tensor();
  c.d = d->tensor();
  c.layout = layout;
  return c;
}

uint64_t workspace_of(const Kernels &kernels, const octavo_gemm &c) {
  uint64_t bytes = 0;
  EXPECT_EQ(kernels.table->workspace_bytes(kernels.ctx(), &c, &bytes), OCTAVO_OK);
  return bytes;
}

TEST(GemmLayout, equals_the_product_of_transposes) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const int64_t m : {0, 1, 13, 64, 129}) {
      for (const int64_t n : {1, 31, 65}) {
        for (const int64_t k : {0, 1, 33, 130}) {
          for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
            Matrix a(dtype, m, k, 1);
            Matrix b(OCTAVO_BF16, n, k, 3);
            Matrix bias(OCTAVO_F32, 1, n);
            a.fill(static_cast<unsigned>(m + k));
            b.fill(static_cast<unsigned>(n + k));
            bias.fill(1);
            const float factors[] = {0.7f, 1.3f};
            const octavo_scale scales[] = {per_tensor(&factors[0]), per_tensor(&factors[1])};
            const Matrix a_t = transpose(a);
            const Matrix b_t = transpose(b);
            Matrix expected(OCTAVO_F32, m, n, 1);
            expected.fill(2);
            octavo_gemm plain = call_of(a, b, &expected, 0);
            const uint64_t bytes = workspace_of(kernels, plain);
            Matrix start = expected;
            plain.bias = bias.tensor();
            plain.accumulate = 1;
            /* A plain operand with a scale may also have any layout. */
            plain.a_scale_inv = dtype == OCTAVO_F32 ? nullptr : &scales[0];
            plain.b_scale_inv = dtype == OCTAVO_F16 ? &scales[1] : nullptr;
            ASSERT_EQ(kernels.gemm(plain), OCTAVO_OK) << kernels.host().last_text();
            for (const uint32_t layout : {1u, 2u, 3u}) {
              Matrix d = start;
              octavo_gemm c = call_of((layout & OCTAVO_GEMM_A_KM) != 0 ? a_t : a,
                                      (layout & OCTAVO_GEMM_B_KN) != 0 ? b_t : b, &d, layout);
              EXPECT_EQ(workspace_of(kernels, c), bytes);
              c.bias = bias.tensor();
              c.accumulate = 1;
              c.a_scale_inv = plain.a_scale_inv;
              c.b_scale_inv = plain.b_scale_inv;
              ASSERT_EQ(kernels.gemm(c), OCTAVO_OK) << kernels.host().last_text();
              ASSERT_EQ(d.data(), expected.data())
                  << level << " layout " << layout << " " << m << " x " << n << " x " << k;
            }
          }
        }
      }
    }
  }
}

TEST(GemmLayout, threads_and_levels_give_equal_bits) {
  Matrix a(OCTAVO_F32, 65, 217);
  Matrix b(OCTAVO_F32, 65, 130);
  a.fill(1);
  b.fill(2);
  Matrix expected(OCTAVO_F32, 217, 130);
  Kernels reference(0, "baseline");
  ASSERT_EQ(reference.gemm(call_of(a, b, &expected, 3)), OCTAVO_OK);
  for (const std::string &level : supported_levels()) {
    for (const int threads : {1, 2, 5}) {
      Kernels kernels(threads, level);
      Matrix d(OCTAVO_F32, 217, 130);
      ASSERT_EQ(kernels.gemm(call_of(a, b, &d, 3)), OCTAVO_OK);
      EXPECT_EQ(d.data(), expected.data()) << level << " " << threads;
    }
  }
}

}  // namespace
}  // namespace octavo::test
