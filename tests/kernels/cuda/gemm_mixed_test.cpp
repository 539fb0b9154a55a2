/* Products that cuBLASLt takes only once their operands are of one dtype. */
#include "tests/kernels/cuda/gemm_expect.h"

namespace octavo::test {
namespace {

/* Exactly: bf16 values are values of f32, and codes of both FP8 dtypes are of any other. */
TEST(CudaGemmMixed, operands_of_two_kinds) {
  GemmDevices devices;
  for (const uint32_t a : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const uint32_t b : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      GemmCase g = {16, 32, 48};
      g.a = a;
      g.b = b;
      g.a_scale = a == OCTAVO_F16 || a >= OCTAVO_E4M3FN ? uint32_t{OCTAVO_PER_TENSOR} : kNoScale;
      g.b_scale = kNoScale;
      expect_gemm(devices, g);
      const auto is_codes = [](cudaDataType t) {
        return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2;
      };
      const fake_blas::Call &c = fake_library().calls[0];
      EXPECT_EQ(is_codes(c.a_type), is_codes(c.b_type)) << g.text();
      if (!is_codes(c.a_type)) {
        EXPECT_EQ(c.a_type, c.b_type) << g.text();
      }
      /* An f32 operand is never rounded. */
      if (a == OCTAVO_F32 || b == OCTAVO_F32 ||
          (!is_codes(c.a_type) && a + b == OCTAVO_BF16 + OCTAVO_F16)) {
        EXPECT_EQ(c.a_type, CUDA_R_32F) << g.text();
      }
    }
  }
}

/* An evaluation under bf16 autocast: x in bf16, the weight in f32. */
TEST(CudaGemmMixed, mixed_operands_with_every_output_and_layout) {
  GemmDevices devices;
  for (const auto &[a, b] : {std::pair<uint32_t, uint32_t>{OCTAVO_BF16, OCTAVO_F32},
                             {OCTAVO_F32, OCTAVO_BF16},
                             {OCTAVO_BF16, OCTAVO_F16}}) {
    for (uint32_t layout = 0; layout < 4; ++layout) {
      GemmCase g = {24, 17, 40};
      g.a = a;
      g.b = b;
      g.a_scale = g.b_scale = kNoScale;
      g.layout = layout;
      g.gap = layout;
      expect_outputs(devices, g);
    }
  }
  GemmCase g = {24, 17, 40};
  g.a = g.b = OCTAVO_E5M2;
  g.a_scale = OCTAVO_PER_ROW;
  expect_outputs(devices, g);
}

/* As many parts as fit into half a mebibyte, whichever operand is converted. */
TEST(CudaGemmMixed, mixed_operands_in_parts) {
  setenv("OCTAVO_CUDA_GEMM_WORKSPACE", "1", 1);
  GemmDevices devices;
  unsetenv("OCTAVO_CUDA_GEMM_WORKSPACE");
  for (const uint32_t d : {OCTAVO_F32, OCTAVO_BF16}) {
    for (const auto &[a, b] : {std::pair<uint32_t, uint32_t>{OCTAVO_BF16, OCTAVO_F32},
                               {OCTAVO_F32, OCTAVO_BF16},
                               {OCTAVO_BF16, OCTAVO_F16}}) {
      for (uint32_t layout = 0; layout < 4; ++layout) {
        GemmCase g = {66, 70, 2055};
        g.a = a;
        g.b = b;
        g.d = d;
        g.layout = layout;
        g.bias = OCTAVO_F32;
        g.accumulates = layout == 2;
        g.a_scale = g.b_scale = kNoScale;
        fake_library().calls.clear();
        EXPECT_EQ(run_gemm(devices, g), OCTAVO_OK) << g.text() << devices.host().last_text();
        EXPECT_GT(fake_library().calls.size(), 1u) << g.text();
        EXPECT_LT(fake_library().calls.size(), 40u) << g.text();
      }
    }
  }
  /* Not even 16 rows fit. */
  GemmCase g = {1, 2, 40000};
  g.a = OCTAVO_BF16;
  g.b = OCTAVO_F32;
  g.a_scale = g.b_scale = kNoScale;
  expect_gemm(devices, g, 0);
}

}  // namespace
}  // namespace octavo::test
