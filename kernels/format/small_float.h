/* kernels/format/small_float.h: rounding fp32 to a format of 8 or 16 bits, and back, without sign.
 *
 * One round-to-nearest-even for normal and subnormal results alike; there is no second rounding and
 * no flush to zero. float8.h and float16.h add sign, limits and NaN.
 */
#ifndef OCTAVO_KERNELS_FORMAT_SMALL_FLOAT_H
#define OCTAVO_KERNELS_FORMAT_SMALL_FLOAT_H

#include "kernels/format/bits.h"

namespace octavo {

/* The code of a non-negative finite fp32 number, given as bits and already clamped to the format's
 * range. Both ways are computed and one is chosen, so that a loop over elements vectorizes. */
template <int kMantissaBits, int kBias>
OCTAVO_HOST_DEVICE static inline int32_t round_to_code(int32_t magnitude) {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr int32_t kSmallestNormal = (128 - kBias) << 23;
  /* Normal: add just less than half a unit, plus one when the kept part is odd. */
  const int32_t half = (1 << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1);
  const int32_t normal = ((magnitude + half) >> kDropped) - ((127 - kBias) << kMantissaBits);
  /* Subnormal: beside this addend one unit of fp32 is one unit of the format, so the addition
   * itself rounds to nearest even, and leaves the code in the low bits of the sum. */
  constexpr int32_t kAddend = (127 + 24 - kBias - kMantissaBits) << 23;
  const int32_t subnormal = float_bits(bits_float(magnitude) + bits_float(kAddend)) - kAddend;
  return magnitude < kSmallestNormal ? subnormal : normal;
}

/* The fp32 bits of a code without sign; the caller handles infinity and NaN. */
template <int kMantissaBits, int kBias>
OCTAVO_HOST_DEVICE static inline int32_t code_to_bits(int32_t code) {
  constexpr int32_t kUnit = (128 - kBias - kMantissaBits) << 23; /* the smallest subnormal */
  const int32_t normal = (code << (23 - kMantissaBits)) + ((127 - kBias) << 23);
  const int32_t subnormal = float_bits(static_cast<float>(code) * bits_float(kUnit));
  return code < (1 << kMantissaBits) ? subnormal : normal;
}

}  // namespace octavo

#endif
