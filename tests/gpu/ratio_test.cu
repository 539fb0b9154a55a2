/* adam_ratios against the roots and quotients of the compiler, for billions of operands. */
#include <gtest/gtest.h>

#include "kernels/cuda/device/adam_ratio.cuh"

namespace octavo::cuda {
namespace {

constexpr int kLaunches = 64;
constexpr int kBlocks = 4096;

__device__ uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

/* Numbers of each kind of exponent: any bits, or a mantissa at random between 2^-90 and 2^70. */
__device__ float number(uint32_t random, uint32_t exponent, bool is_any) {
  return bits_float(
      static_cast<int32_t>(is_any ? random : (random & 0x807FFFFFu) | (37 + exponent % 160) << 23));
}

__global__ void __launch_bounds__(kThreads)
    ratio_kernel(uint32_t launch, unsigned long long *wrong, unsigned long long *fast) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  uint32_t state = mixed(thread ^ mixed(launch + 1));
  const auto random = [&] { return state = mixed(state + 0x9E3779B9u); };
  AdamFactors f = {};
  unsigned long long found_fast = 0, found_wrong = 0;
  for (int round = 0; round < 4; ++round) {
    f.root_correction2 =
        bits_float(static_cast<int32_t>((127 - random() % 10) << 23 | (random() & 0x7FFFFF)));
    if (f.root_correction2 > 1.0f) f.root_correction2 *= 0.5f;
    f.eps = round == 0 ? 0.0f : round == 1 ? 1e-8f : number(random() & 0x7FFFFFFF, random(), false);
    const bool is_any = launch % 8 == 7;
    const uint32_t spread = 1 + launch % 160;
    const uint32_t near_m = random(), near_v = random();
    float m[kPack], v[kPack], ratios[kPack];
    RatioRange range;
    for (int i = 0; i < kPack; ++i) {
      m[i] = number(random(), near_m + random() % spread, is_any);
      v[i] = number(random() & 0x7FFFFFFF, near_v + random() % spread, is_any);
      if (random() % 64 == 0) m[i] = random() % 2 == 0 ? 0.0f : -0.0f;
      range.add(m[i], v[i]);
    }
    adam_ratios(f, m, v, ratios);
    found_fast += range.holds(f) ? 1 : 0;
    for (int i = 0; i < kPack; ++i) {
      const float exact = adam_ratio(f, {m[i], v[i]});
      const bool is_equal =
          float_bits(exact) == float_bits(ratios[i]) || (is_nan(exact) && is_nan(ratios[i]));
      found_wrong += is_equal ? 0 : 1;
    }
  }
  if (found_fast > 0) atomicAdd(fast, found_fast);
  if (found_wrong > 0) atomicAdd(wrong, found_wrong);
}

TEST(AdamRatio, has_the_bits_of_the_compilers_operations) {
  unsigned long long *counts = nullptr;
  ASSERT_EQ(cudaMallocManaged(&counts, 2 * sizeof(*counts)), cudaSuccess);
  counts[0] = counts[1] = 0;
  for (uint32_t launch = 0; launch < kLaunches; ++launch)
    ratio_kernel<<<kBlocks, kThreads>>>(launch, counts, counts + 1);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const double packs = 4.0 * kLaunches * kBlocks * kThreads;
  EXPECT_EQ(counts[0], 0u);
  /* A fair share went the fast way, and not all. */
  EXPECT_GT(static_cast<double>(counts[1]), 0.05 * packs);
  EXPECT_LT(static_cast<double>(counts[1]), 0.95 * packs);
  cudaFree(counts);
}

}  // namespace
}  // namespace octavo::cuda
