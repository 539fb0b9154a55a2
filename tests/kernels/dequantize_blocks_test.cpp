/* dequantize with block granularities: each code times the scale_inv of its block.
 *
 * One product and one rounding; with accumulate one addition between them.
 */
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"

namespace octavo::test {
namespace {

TEST(DequantizeBlocks, multiplies_once_and_rounds_once) {
  for (const std::string &level : supported_levels()) {
    Kernels kernels(2, level);
    for (const uint32_t granularity : kBlockGranularities) {
      for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
        for (const uint32_t out_dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
          for (const uint32_t accumulate : {0u, 1u}) {
            Matrix in(dtype, 133, 300, 1);
            in.fill(5, 2.0f);
            Matrix out(out_dtype, 133, 300, 2);
            out.fill(6);
            const Matrix before = out;
            Scales scales(granularity, 133, 300, 3);
            scales.fill(7);
            auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
            c.in = in.tensor();
            c.scale_inv = scales.get();
            c.out = out.tensor();
            c.accumulate = accumulate;
            ASSERT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
            Matrix expected(out_dtype, 1, 1);
            for (int64_t row = 0; row < in.rows(); ++row) {
              for (int64_t col = 0; col < in.cols(); ++col) {
                const float value = in.get(row, col) * scales.of(row, col);
                expected.set(0, 0, accumulate == 1 ? before.get(row, col) + value : value);
                ASSERT_TRUE(same_value(out.get(row, col), expected.get(0, 0)))
                    << level << " granularity " << granularity << " " << row << ", " << col;
              }
            }
          }
        }
      }
    }
  }
}

TEST(DequantizeBlocks, nothing_at_all_is_legal) {
  Kernels kernels;
  octavo_tensor codes = {nullptr, 0, 8, 8, OCTAVO_E4M3FN, 0};
  octavo_tensor plain = {nullptr, 0, 8, 8, OCTAVO_F32, 0};
  const octavo_scale none = OCTAVO_SCALE(nullptr, 1, OCTAVO_F32, OCTAVO_BLOCK_1X128);
  auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  c.in = &codes;
  c.scale_inv = &none;
  c.out = &plain;
  EXPECT_EQ(kernels.dequantize(c), OCTAVO_OK) << kernels.host().last_text();
}

}  // namespace
}  // namespace octavo::test
