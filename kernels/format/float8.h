/* kernels/format/float8.h: E4M3 (the "fn" variant) and E5M2 to and from fp32.
 *
 * Encoding rounds to nearest even and keeps subnormals. Finite overflow and infinity both give the
 * largest finite value (E4M3 448 = 7E, E5M2 57344 = 7B). NaN stays NaN and keeps its sign (7F, FF);
 * it must never become 448. The code of a scaled element is that of scaled_by, see bits.h: where it
 * is NaN it is 7F or FF with the sign of the element, whatever made it NaN.
 */
#pragma once

#include "kernels/format/small_float.h"

namespace octavo {

constexpr float kMaxE4m3 = 448.0f;
constexpr float kMaxE5m2 = 57344.0f;

/* Adds sign, saturation and NaN to round_to_code. kLargest: fp32 bits of the largest finite value.
 */
template <int kMantissaBits, int kBias, int32_t kLargest>
OCTAVO_HOST_DEVICE static inline uint8_t encode_float8(float value) {
  const int32_t bits = float_bits(value);
  const int32_t magnitude = bits & kMagnitudeMask;
  const int32_t clamped = magnitude < kLargest ? magnitude : kLargest;
  const int32_t finite = round_to_code<kMantissaBits, kBias>(clamped);
  const int32_t code = magnitude > kInfinityBits ? 0x7F : finite;
  return static_cast<uint8_t>(((bits >> 24) & 0x80) | code);
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_e4m3(float value) {
  return encode_float8<3, 7, 0x43E00000>(value);
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_e5m2(float value) {
  return encode_float8<2, 15, 0x47600000>(value);
}

OCTAVO_HOST_DEVICE static inline float decode_e4m3(uint8_t code) {
  const int32_t magnitude = code & 0x7F;
  const int32_t finite = code_to_bits<3, 7>(magnitude);
  const int32_t bits = magnitude == 0x7F ? kQuietNanBits : finite;
  return bits_float(static_cast<int32_t>(static_cast<uint32_t>(code & 0x80) << 24) | bits);
}

OCTAVO_HOST_DEVICE static inline float decode_e5m2(uint8_t code) {
  const int32_t magnitude = code & 0x7F;
  const int32_t finite = code_to_bits<2, 15>(magnitude);
  const int32_t special = magnitude == 0x7C ? kInfinityBits : kQuietNanBits;
  const int32_t bits = magnitude < 0x7C ? finite : special;
  return bits_float(static_cast<int32_t>(static_cast<uint32_t>(code & 0x80) << 24) | bits);
}

}  // namespace octavo
