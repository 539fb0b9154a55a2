/* kernels/format/power.h: log2 and exp2 in fp64, bit-identical on every machine.
 *
 * Library functions differ in the last bit between systems and devices, and so would stored codes.
 * Both functions are therefore fixed sequences of IEEE operations. No product may be contracted
 * with the addition that follows: write product() and product_sum(), never a * b + c.
 */
#pragma once

#include "kernels/format/bits.h"

namespace octavo {

OCTAVO_HOST_DEVICE static inline int64_t double_bits(double value) {
#ifdef __CUDA_ARCH__
  return __double_as_longlong(value);
#else
  return __builtin_bit_cast(int64_t, value);
#endif
}

OCTAVO_HOST_DEVICE static inline double bits_double(int64_t bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(bits);
#else
  return __builtin_bit_cast(double, bits);
#endif
}

OCTAVO_HOST_DEVICE static inline double product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b; /* the build disables contraction */
#endif
}

/* fl(fl(a * b) + c). */
OCTAVO_HOST_DEVICE static inline double product_sum(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(__dmul_rn(a, b), c);
#else
  const double rounded = a * b;
  return rounded + c;
#endif
}

/* log2 of a positive normal number, with a relative error of a few 2^-53, also for arguments close
 * to
 * 1. The result for other arguments is unspecified. */
OCTAVO_HOST_DEVICE static inline double log2_of(double value) {
  constexpr int64_t kRootBits = 0x3FE6A09E667F3BCD; /* sqrt(1/2) */
  constexpr int64_t kOneBits = 0x3FF0000000000000;
  constexpr int64_t kMantissa = 0x000FFFFFFFFFFFFF;
  /* value = 2^exponent * m with m in [sqrt(1/2), sqrt(2)). The addition is unsigned, because
   * callers also pass infinity and NaN and discard the result. */
  const int64_t shifted = static_cast<int64_t>(static_cast<uint64_t>(double_bits(value)) +
                                               static_cast<uint64_t>(kOneBits - kRootBits));
  const int64_t exponent = (shifted >> 52) - 1023;
  const double m = bits_double((shifted & kMantissa) + kRootBits);
  /* ln(m) = 2 (t + t^3/3 + t^5/5 + ...), abs(t) < 0.172. The first omitted term is below 2^-62 of
   * the sum. */
  const double t = (m - 1.0) / (m + 1.0);
  const double square = product(t, t);
  double sum = 0.0;
  for (int term = 23; term >= 3; term -= 2) sum = product_sum(square, sum, 1.0 / term);
  sum = product(square, sum);
  constexpr double kTwoOverLn2 = 2.8853900817779268;
  const double scaled = product(kTwoOverLn2, t);
  return product_sum(scaled, sum, scaled) + static_cast<double>(exponent);
}

/* 2^value with a relative error of a few 2^-53; 0 for value < -1022, infinity for value >= 1024. */
OCTAVO_HOST_DEVICE static inline double exp2_of(double value) {
  if (value != value) return value;
  if (value >= 1024.0) return bits_double(INT64_C(0x7FF0000000000000));
  if (value < -1022.0) return 0.0;
  const int32_t nearest = static_cast<int32_t>(value + (value < 0.0 ? -0.5 : 0.5));
  /* e^x = 1 + x (1 + x/2 (1 + x/3 (...))), abs(x) < 0.347. */
  constexpr double kLn2 = 0.69314718055994531;
  const double x = product(value - static_cast<double>(nearest), kLn2);
  double sum = 1.0;
  for (int term = 15; term >= 1; --term) sum = product_sum(product(x, 1.0 / term), sum, 1.0);
  /* 2^1024 is out of range, so the power of two is applied in two factors. */
  const int32_t half = nearest / 2;
  const double low = bits_double(static_cast<int64_t>(half + 1023) << 52);
  const double high = bits_double(static_cast<int64_t>(nearest - half + 1023) << 52);
  return product(product(sum, low), high);
}

OCTAVO_HOST_DEVICE static inline double square_root_of(double value) {
#ifdef __CUDA_ARCH__
  return __dsqrt_rn(value);
#else
  return __builtin_sqrt(value);
#endif
}

}  // namespace octavo
