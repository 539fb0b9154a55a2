/* kernels/format/bits.h: fp32 values as bit patterns, and powers of two, for host and device code.
 *
 * Every function of this folder has internal linkage. Files compiled for AVX-512 use them too, and
 * the linker must not merge such a copy into code that runs on an older CPU.
 */
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define OCTAVO_HOST_DEVICE __host__ __device__
#else
#define OCTAVO_HOST_DEVICE
#endif

namespace octavo {

constexpr float kFloatMax = 0x1.fffffep127f;
constexpr int32_t kMagnitudeMask = 0x7FFFFFFF;
constexpr int32_t kInfinityBits = 0x7F800000;
constexpr int32_t kQuietNanBits = 0x7FC00000;
constexpr int32_t kMantissaMask = 0x007FFFFF;

OCTAVO_HOST_DEVICE static inline int32_t float_bits(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_int(value);
#else
  return __builtin_bit_cast(int32_t, value);
#endif
}

OCTAVO_HOST_DEVICE static inline float bits_float(int32_t bits) {
#ifdef __CUDA_ARCH__
  return __int_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

/* Tests the bits instead of comparing, so that the result is right in callers with -ffast-math. */
OCTAVO_HOST_DEVICE static inline bool is_nan(float value) {
  return (float_bits(value) & kMagnitudeMask) > kInfinityBits;
}

OCTAVO_HOST_DEVICE static inline bool is_infinite(float value) {
  return (float_bits(value) & kMagnitudeMask) == kInfinityBits;
}

OCTAVO_HOST_DEVICE static inline bool is_finite(float value) {
  return (float_bits(value) & kMagnitudeMask) < kInfinityBits;
}

/* Replaces any NaN by the one NaN that kernels write. Which of two NaN operands a CPU propagates
 * depends on the operand order chosen by the compiler. */
OCTAVO_HOST_DEVICE static inline float with_one_nan(float value) {
  return value == value ? value : bits_float(kQuietNanBits);
}

/* fl32(value * factor), on its way to a code. A NaN has the sign of `value` and no payload, whether
 * it is one of the operands or comes of 0 * infinity: processors differ in which NaN they give, and
 * compilers in the order of the operands. */
OCTAVO_HOST_DEVICE static inline float scaled_by(float value, float factor) {
  const float result = value * factor;
  const int32_t nan = (float_bits(value) & ~kMagnitudeMask) | kQuietNanBits;
  return result == result ? result : bits_float(nan);
}

OCTAVO_HOST_DEVICE static inline float absolute(float value) {
  return bits_float(float_bits(value) & kMagnitudeMask);
}

/* Whether a scale can be derived from this amax. */
OCTAVO_HOST_DEVICE static inline bool is_usable_amax(float amax) {
  return amax > 0.0f && is_finite(amax);
}

/* 2^exponent, exact; 0 below the smallest subnormal, infinity above the largest exponent. */
OCTAVO_HOST_DEVICE static inline float power_of_two(int32_t exponent) {
  if (exponent > 127) return bits_float(kInfinityBits);
  if (exponent >= -126) return bits_float((exponent + 127) << 23);
  return exponent >= -149 ? bits_float(1 << (exponent + 149)) : 0.0f;
}

/* The largest power of two <= value, for value > 0. Returns 0, infinity and NaN unchanged. */
OCTAVO_HOST_DEVICE static inline float floor_to_power_of_two(float value) {
  const int32_t bits = float_bits(value);
  if (bits >= kInfinityBits) return value;
  if (bits > kMantissaMask) return bits_float(bits & ~kMantissaMask);
  int32_t top = bits; /* subnormal: keep the highest set bit */
  for (int32_t shift = 1; shift < 32; shift *= 2) top |= top >> shift;
  return bits_float(top - (top >> 1));
}

/* floor(log2(value)), exact, for finite value > 0. */
OCTAVO_HOST_DEVICE static inline int32_t floor_log2(float value) {
  int32_t bits = float_bits(value);
  if (bits > kMantissaMask) return (bits >> 23) - 127;
  int32_t exponent = -150;
  for (; bits != 0; bits >>= 1) ++exponent;
  return exponent;
}

}  // namespace octavo
