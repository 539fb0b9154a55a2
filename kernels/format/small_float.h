/* kernels/format/small_float.h: rounds fp32 magnitudes to formats of 8 or 16 bits, and converts
 * back.
 *
 * Normal and subnormal results are rounded to nearest even exactly once; nothing is flushed to
 * zero. float8.h and float16.h add the sign, saturation and NaN.
 */
#pragma once

#include "kernels/format/bits.h"

namespace octavo {

/* The code of a non-negative finite fp32 number, given as bits and already clamped to the range of
 * the format. Computes the normal and the subnormal result and selects one, so that loops
 * vectorize. */
template <int kMantissaBits, int kBias>
OCTAVO_HOST_DEVICE static inline int32_t round_to_code(int32_t magnitude) {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr int32_t kSmallestNormal = (128 - kBias) << 23;
  /* Normal: add just less than half a unit, plus one if the kept part is odd. */
  const int32_t half = (1 << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1);
  const int32_t normal = ((magnitude + half) >> kDropped) - ((127 - kBias) << kMantissaBits);
  /* Subnormal: at the magnitude of this addend, one unit of fp32 is one unit of the format. The
   * addition therefore rounds to nearest even and leaves the code in the low bits of the sum. */
  constexpr int32_t kAddend = (127 + 24 - kBias - kMantissaBits) << 23;
  const int32_t subnormal = float_bits(bits_float(magnitude) + bits_float(kAddend)) - kAddend;
  return magnitude < kSmallestNormal ? subnormal : normal;
}

/* The fp32 bits of a code without its sign. The caller handles infinity and NaN. */
template <int kMantissaBits, int kBias>
OCTAVO_HOST_DEVICE static inline int32_t code_to_bits(int32_t code) {
  constexpr int32_t kUnit = (128 - kBias - kMantissaBits) << 23; /* the smallest subnormal */
  const int32_t normal = (code << (23 - kMantissaBits)) + ((127 - kBias) << 23);
  const int32_t subnormal = float_bits(static_cast<float>(code) * bits_float(kUnit));
  return code < (1 << kMantissaBits) ? subnormal : normal;
}

}  // namespace octavo
