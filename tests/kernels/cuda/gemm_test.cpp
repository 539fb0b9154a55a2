/* gemm of kernels/cuda against kernels/cpu, bit for bit, on every way that a product may take. */
#include "tests/kernels/cuda/gemm_expect.h"

namespace octavo::test {
namespace {

TEST(CudaGemm, codes_with_tensor_scales) {
  GemmDevices devices;
  for (const uint32_t a : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
    for (const uint32_t b : {OCTAVO_E4M3FN, OCTAVO_E5M2}) {
      GemmCase g = {32, 48, 64};
      g.a = a;
      g.b = b;
      expect_outputs(devices, g);
    }
  }
}

TEST(CudaGemm, odd_sizes_strides_and_missing_scales) {
  GemmDevices devices;
  for (const int64_t k : {0, 1, 15, 16, 33, 80}) {
    for (const int64_t m : {1, 17, 32}) {
      GemmCase g = {m, 19, k};
      g.bias = OCTAVO_BF16;
      expect_gemm(devices, g, k > 0);
      g.n = 16;
      g.gap = 16;
      g.b_scale = kNoScale;
      expect_gemm(devices, g, k > 0);
      g.a_scale = kNoScale;
      g.gap = 3;
      expect_gemm(devices, g, k > 0);
    }
  }
  expect_gemm(devices, {0, 16, 16}, 0);
  expect_gemm(devices, {16, 0, 16}, 0);
}

TEST(CudaGemm, plain_operands_of_any_layout) {
  GemmDevices devices;
  for (const uint32_t dtype : kPlain) {
    for (uint32_t layout = 0; layout < 4; ++layout) {
      GemmCase g = {24, 17, 40};
      g.a = g.b = dtype;
      g.a_scale = g.b_scale = kNoScale;
      g.layout = layout;
      g.gap = layout;
      expect_outputs(devices, g);
      g.a_scale = g.b_scale = OCTAVO_PER_TENSOR;
      expect_outputs(devices, g);
    }
  }
}

TEST(CudaGemm, scales_of_rows) {
  for (const int capability : {89, 90, 100}) {
    GemmDevices devices(capability);
    for (const uint32_t a : {uint32_t{OCTAVO_PER_ROW}, uint32_t{OCTAVO_PER_TENSOR}, kNoScale}) {
      for (const uint32_t b : {OCTAVO_PER_ROW, OCTAVO_PER_TENSOR}) {
        for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_F16}) {
          GemmCase g = {32, 16, 48};
          g.a = g.b = dtype;
          g.a_scale = a;
          g.b_scale = b;
          g.scale_gap = b == OCTAVO_PER_ROW ? capability % 2 : 0;
          g.accumulates = dtype == OCTAVO_F16;
          expect_gemm(devices, g);
          g.d = OCTAVO_F32;
          g.bias = OCTAVO_F32;
          g.accumulates = false;
          g.scale_gap = 0;
          expect_gemm(devices, g);
        }
      }
    }
  }
}

TEST(CudaGemm, scales_of_blocks) {
  constexpr uint32_t kLong[] = {OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128};
  constexpr uint32_t kShort[] = {OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32};
  for (const int capability : {89, 90, 100, 120}) {
    GemmDevices devices(capability);
    const bool has_long = capability == 90;
    for (const auto &[m, n, k] : {std::array<int64_t, 3>{16, 32, 16}, {144, 160, 272}}) {
      /* Where the library has no such blocks, the slow way is taken; once is enough. */
      for (const auto &kinds : {kLong, kShort}) {
        if ((kinds == kLong ? !has_long : capability < 100) && m > 16) continue;
        for (int i = 0; i < 4; ++i) {
          GemmCase g = {m, n, k};
          g.a = i == 1 ? OCTAVO_E5M2 : OCTAVO_E4M3FN;
          g.a_scale = kinds[i / 2];
          g.b_scale = kinds[i % 2];
          if (m > 16 && i == 3 && kinds == kLong) continue;
          g.d = i == 2 ? OCTAVO_F32 : OCTAVO_BF16;
          g.bias = i == 2 ? OCTAVO_F32 : i == 1 ? OCTAVO_BF16 : 0;
          g.accumulates = i == 2;
          g.scale_gap = i;
          const bool is_square = i == 3 && kinds == kLong;
          expect_gemm(devices, g, (kinds == kLong ? has_long : capability >= 100) && !is_square);
        }
      }
    }
  }
}

/* An f32 bias for a bf16 output goes through f32 tiles; here they are several. */
TEST(CudaGemm, tiles_of_rows_and_columns) {
  setenv("OCTAVO_CUDA_GEMM_WORKSPACE", "1", 1);
  GemmDevices devices;
  unsetenv("OCTAVO_CUDA_GEMM_WORKSPACE");
  GemmCase g = {144, 1024 + 16, 144};
  g.bias = OCTAVO_F32;
  g.a_scale = OCTAVO_BLOCK_128X128;
  g.b_scale = OCTAVO_BLOCK_1X128;
  expect_gemm(devices, g, 4);
  EXPECT_NE(devices.host().last_text().find("through f32 tiles"), std::string::npos)
      << devices.host().last_text();
}

TEST(CudaGemm, without_algorithms_that_fuse_the_bits_are_the_same) {
  GemmDevices devices;
  fake_library().refuses_bias = true;
  fake_library().refuses_vectors = true;
  GemmCase g = {32, 16, 48};
  g.bias = OCTAVO_BF16;
  expect_gemm(devices, g);
  g.a_scale = g.b_scale = OCTAVO_PER_ROW;
  expect_gemm(devices, g);
  fake_library().algorithms = 0;
  g.k = 64;
  expect_gemm(devices, g, 0);
  EXPECT_NE(devices.host().last_text().find("no algorithm"), std::string::npos);
}

/* Everything together, by chance. */
TEST(CudaGemm, random_products) {
  std::mt19937_64 random(20);
  const auto any = [&](auto... choices) {
    const uint32_t all[] = {static_cast<uint32_t>(choices)...};
    return all[random() % std::size(all)];
  };
  for (int round = 0; round < 40; ++round) {
    GemmDevices devices(static_cast<int>(any(89, 90, 100, 120)));
    for (int i = 0; i < 8; ++i) {
      const auto size = [&] {
        return static_cast<int64_t>(random() % 2 == 0 ? any(16, 32, 48, 144) : 1 + random() % 40);
      };
      GemmCase g = {size(), size(), size()};
      const uint32_t family = any(0, 1, 2, 3);
      if (family == 0) { /* plain */
        g.a = any(OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16);
        g.b = any(g.a, g.a, OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16);
        g.a_scale = g.b_scale = kNoScale;
        g.layout = any(0, 1, 2, 3);
      } else {
        g.a = any(OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_E5M2);
        g.b = any(OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_E5M2);
        if (family == 1) {
          g.a_scale = any(kNoScale, OCTAVO_PER_TENSOR, OCTAVO_PER_ROW);
          g.b_scale = any(kNoScale, OCTAVO_PER_TENSOR, OCTAVO_PER_ROW);
        } else if (family == 2) {
          g.a_scale = any(OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128);
          g.b_scale = any(OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128);
        } else {
          g.a_scale = any(OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32);
          g.b_scale = any(OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_32X32);
        }
      }
      g.d = any(OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16);
      g.bias = any(0, OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16);
      g.bias_after = any(0, 1) == 1;
      g.accumulates = any(0, 1) == 1;
      g.is_fast = any(0, 1) == 1;
      g.gap = any(0, 16, 5);
      g.scale_gap = any(0, 1, 3);
      ASSERT_EQ(run_gemm(devices, g), OCTAVO_OK)
          << g.text() << ": " << devices.host().last_text() << fake_library().refusal;
    }
  }
}

TEST(CudaGemm, reference_by_choice) {
  setenv("OCTAVO_CUDA_GEMM", "reference", 1);
  {
    GemmDevices devices;
    for (const uint32_t granularity : {OCTAVO_PER_TENSOR, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_1X32}) {
      GemmCase g = {16, 32, 160};
      g.a_scale = g.b_scale = granularity;
      expect_gemm(devices, g, 0);
    }
    EXPECT_EQ(devices.host().texts().size(), 1u) << "told once";
    EXPECT_NE(devices.host().last_text().find("OCTAVO_CUDA_GEMM"), std::string::npos);
  }
  unsetenv("OCTAVO_CUDA_GEMM");
}

}  // namespace
}  // namespace octavo::test
