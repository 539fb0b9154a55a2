/* kernels/cuda/device/reduce.cuh: what all threads of a block found, put together.
 *
 * Only operations whose order does not show: maxima, logical or, counts.
 */
#pragma once

#include <cuda_runtime.h>

#include "kernels/format/bits.h"

namespace octavo::cuda {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kThreads = 256; /* of a block, where nothing else is said */
constexpr int kWarps = kThreads / static_cast<int>(kWarp);

/* What is learned about values while they pass: amax ignores NaN, as bits of a float >= 0. */
struct Stats {
  int32_t amax_bits;
  int32_t nonfinite;

  __device__ void add(float value) {
    const int32_t magnitude = float_bits(value) & kMagnitudeMask;
    if (magnitude >= kInfinityBits) nonfinite = 1;
    if (magnitude <= kInfinityBits && magnitude > amax_bits) amax_bits = magnitude;
  }
  __device__ void merge(const Stats &other) {
    if (other.amax_bits > amax_bits) amax_bits = other.amax_bits;
    nonfinite |= other.nonfinite;
  }
};

/* The larger one; a value that is NaN does not count. */
__device__ __forceinline__ float larger(float so_far, float value) {
#ifdef __CUDA_ARCH__
  return fmaxf(so_far, value);
#else
  return value > so_far ? value : so_far;
#endif
}

__device__ inline Stats merge_warp(Stats stats) {
  for (int bits = static_cast<int>(kWarp) / 2; bits > 0; bits /= 2) {
    stats.merge({__shfl_xor_sync(kAllLanes, stats.amax_bits, bits),
                 __shfl_xor_sync(kAllLanes, stats.nonfinite, bits)});
  }
  return stats;
}

/* Of a block of kThreads threads in x and y; every thread gets the answer. `shared` is its own
 * memory and may be used again after the next barrier. */
__device__ inline Stats merge_block(Stats stats, Stats (&shared)[kWarps]) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  stats = merge_warp(stats);
  if (thread % kWarp == 0) shared[thread / kWarp] = stats;
  __syncthreads();
  Stats all = shared[0];
  for (int i = 1; i < kWarps; ++i) all.merge(shared[i]);
  return all;
}

/* *amax = max, *nonfinite = 1 where there was one; either may be null. Floats >= 0 are ordered as
 * their bits are. */
__device__ inline void publish(const Stats &stats, float *amax, float *nonfinite) {
  if (amax != nullptr && stats.amax_bits > 0)
    atomicMax(reinterpret_cast<int32_t *>(amax), stats.amax_bits);
  if (nonfinite != nullptr && stats.nonfinite != 0)
    atomicMax(reinterpret_cast<int32_t *>(nonfinite), float_bits(1.0f));
}

}  // namespace octavo::cuda
