/* kernels/cuda/device/adam_ratio.cuh: adam_ratio of eight elements, bit for bit.
 *
 * What the compiler makes of a root or a quotient begins with an approximation, corrects it by
 * fused multiply-adds and calls a function for operands at the ends of the range: three branches
 * an element, over which nothing overlaps. Here are the same steps for all elements at once, and
 * one branch, for packs with such an operand. Within the ranges below no step leaves the normal
 * numbers and no remainder has a bit below 2^-149, so the steps round as they do near 1.
 */
#pragma once

#include "kernels/cuda/device/packs.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/format/adam.h"

namespace octavo::cuda {

__device__ __forceinline__ float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/* Of a positive number, to about a unit in the last place. */
__device__ __forceinline__ float rough_reciprocal(float value) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  return 1.0f / value;
#endif
}

__device__ __forceinline__ float rough_reciprocal_root(float value) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#else
  return 1.0f / square_root(value);
#endif
}

__device__ __forceinline__ float near_reciprocal(float value) {
  const float rough = rough_reciprocal(value);
  return fused(rough, fused(-value, rough, 1.0f), rough);
}

/* a / b, given near_reciprocal(b). */
__device__ __forceinline__ float quotient(float a, float b, float reciprocal) {
  const float near = a * reciprocal;
  return fused(reciprocal, fused(-b, near, a), near);
}

__device__ __forceinline__ float near_root(float value) {
  const float rough = rough_reciprocal_root(value);
  const float near = value * rough;
  return fused(fused(-near, near, value), 0.5f * rough, near);
}

/* What all operands of a pack have to be. Then a root is 2^-40 to 2^20, a denominator 2^-40 to
 * 2^41, and a ratio that is not 0 2^-101 to 2^100. */
struct RatioRange {
  static constexpr uint32_t kLeastSquare = (127u - 80) << 23; /* bits of 2^-80 */
  static constexpr uint32_t kMostSquare = (127u + 40) << 23;
  static constexpr uint32_t kLeastMoment = (127u - 60) << 24; /* twice the bits of 2^-60 */
  static constexpr float kMostMoment = 0x1p60f;

  uint32_t most_square = 0; /* less kLeastSquare; huge for what is smaller or no number */
  uint32_t least_moment = 0xFFFFFFFFu; /* twice the bits, less 2: 0 is huge; so is NaN, ... */
  float most_moment = 0.0f;            /* ... which counts nowhere and stays NaN */

  __device__ __forceinline__ void add(float exp_avg, float exp_avg_sq) {
    const uint32_t square = static_cast<uint32_t>(float_bits(exp_avg_sq)) - kLeastSquare;
    const uint32_t moment = (static_cast<uint32_t>(float_bits(exp_avg)) << 1) - 2;
    most_square = square > most_square ? square : most_square;
    least_moment = moment < least_moment ? moment : least_moment;
    most_moment = larger(most_moment, absolute(exp_avg));
  }
  __device__ __forceinline__ bool holds(const AdamFactors &f) const {
    return (most_square <= kMostSquare - kLeastSquare) & (least_moment >= kLeastMoment - 2) &
           (most_moment <= kMostMoment) & (f.root_correction2 >= 0x1p-20f) &
           (f.root_correction2 <= 1.0f) & (f.eps >= 0.0f) & (f.eps <= 0x1p20f);
  }
};

__device__ __forceinline__ void adam_ratios(const AdamFactors &f, const float (&exp_avg)[kPack],
                                            const float (&exp_avg_sq)[kPack],
                                            float (&ratios)[kPack]) {
  RatioRange range;
#pragma unroll
  for (int i = 0; i < kPack; ++i) range.add(exp_avg[i], exp_avg_sq[i]);
  if (range.holds(f)) {
    const float reciprocal = near_reciprocal(f.root_correction2);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float root = quotient(near_root(exp_avg_sq[i]), f.root_correction2, reciprocal);
      const float denominator = root + f.eps;
      const float ratio = quotient(exp_avg[i], denominator, near_reciprocal(denominator));
      /* The sign of 0, too. */
      ratios[i] = bits_float((float_bits(ratio) & kMagnitudeMask) |
                             (float_bits(exp_avg[i]) & ~kMagnitudeMask));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) ratios[i] = adam_ratio(f, {exp_avg[i], exp_avg_sq[i]});
}

}  // namespace octavo::cuda
