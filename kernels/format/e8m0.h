/* kernels/format/e8m0.h: E8M0, a power of two in eight bits: value = 2^(code - 127), FF is NaN.
 *
 * The format has no sign, zero or infinity; encoders ignore the sign of the input. The two encoders
 * differ in rounding and in the code for infinity: use the one that the scale rule names.
 */
#pragma once

#include "kernels/format/bits.h"

namespace octavo {

/* Rounds up, as the conversions of TransformerEngine and CUDA do. Values up to 2^-127, including 0,
 * give 00; infinity and finite overflow give FE; NaN gives FF. */
OCTAVO_HOST_DEVICE static inline uint8_t encode_e8m0_up(float value) {
  const int32_t magnitude = float_bits(value) & kMagnitudeMask;
  if (magnitude > kInfinityBits) return 0xFF;
  const int32_t exponent = magnitude >> 23;
  if (exponent >= 0xFE) return 0xFE;
  const int32_t mantissa = magnitude & kMantissaMask;
  /* With exponent 0, the number is subnormal; 2^-127 has the mantissa 400000. */
  const int32_t rest = exponent == 0 ? 0x400000 : 0;
  return static_cast<uint8_t>(exponent + (mantissa > rest ? 1 : 0));
}

/* Rounds down, as in the OCP MX specification. Values below 2^-126 give 00; infinity and NaN give
 * FF.
 */
OCTAVO_HOST_DEVICE static inline uint8_t encode_e8m0_down(float value) {
  return static_cast<uint8_t>((float_bits(value) & kMagnitudeMask) >> 23);
}

OCTAVO_HOST_DEVICE static inline float decode_e8m0(uint8_t code) {
  if (code == 0xFF) return bits_float(kQuietNanBits);
  return power_of_two(static_cast<int32_t>(code) - 127);
}

/* 2^(127 - code), the multiplier of elements before their cast; exact for every code. */
OCTAVO_HOST_DEVICE static inline float e8m0_multiplier(uint8_t code) {
  if (code == 0xFF) return bits_float(kQuietNanBits);
  return power_of_two(127 - static_cast<int32_t>(code));
}

}  // namespace octavo
