/* dequantize: from codes and plain values to plain tensors.
 *
 * One product and one rounding; with accumulate one addition between them.
 */
#include <gtest/gtest.h>

#include "tests/kernels/fake_host.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {
namespace {

TEST(Dequantize, multiplies_once_and_rounds_once) {
  Kernels kernels(2);
  for (const uint32_t in_dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_F16, OCTAVO_F32}) {
    for (const uint32_t out_dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      for (const uint32_t accumulate : {0u, 1u}) {
        Matrix in(in_dtype, 33, 700, 1);
        in.fill(5, 2.0f);
        Matrix out(out_dtype, 33, 700, 2);
        out.fill(6);
        const Matrix before = out;
        const float scale_inv = 0.123f;
        const octavo_scale scale = per_tensor(&scale_inv);
        auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
        c.in = in.tensor();
        c.scale_inv = &scale;
        c.out = out.tensor();
        c.accumulate = accumulate;
        ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
        Matrix expected(out_dtype, 1, 1);
        for (int64_t row = 0; row < in.rows(); ++row) {
          for (int64_t col = 0; col < in.cols(); ++col) {
            const float value = in.get(row, col) * scale_inv;
            expected.set(0, 0, accumulate == 1 ? before.get(row, col) + value : value);
            ASSERT_TRUE(same_value(out.get(row, col), expected.get(0, 0)));
          }
        }
      }
    }
  }
}

TEST(Dequantize, out_may_be_in_when_their_dtypes_are_equal) {
  Kernels kernels(2);
  for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
    for (const float scale_inv : {1.0f, 0.123f}) {
      Matrix apart(dtype, 33, 700);
      Matrix in(dtype, 33, 700);
      in.fill(5);
      const octavo_scale scale = per_tensor(&scale_inv);
      auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
      c.in = in.tensor();
      c.scale_inv = &scale;
      c.out = apart.tensor();
      ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
      c.out = in.tensor();
      ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
      EXPECT_EQ(in.data(), apart.data());
    }
  }
}

}  // namespace
}  // namespace octavo::test
