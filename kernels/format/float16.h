/* kernels/format/float16.h: bf16 and f16 to and from fp32 without hardware conversions.
 *
 * encode_f16 is the IEEE conversion for plain tensors: overflow gives infinity. f16 with a
 * scale_inv is a quantized format and saturates: use encode_f16_saturating.
 */
#pragma once

#include "kernels/format/small_float.h"

namespace octavo {

constexpr float kMaxF16 = 65504.0f;
constexpr float kMaxBf16 = 0x1.fep127f;

OCTAVO_HOST_DEVICE static inline float decode_bf16(uint16_t value) {
  return bits_float(static_cast<int32_t>(static_cast<uint32_t>(value) << 16));
}

/* NaN becomes quiet and keeps its sign. Rounding may overflow to infinity, as IEEE 754 requires. */
OCTAVO_HOST_DEVICE static inline uint16_t encode_bf16(float value) {
  const uint32_t bits = static_cast<uint32_t>(float_bits(value));
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  const bool is_number = static_cast<int32_t>(bits & 0x7FFFFFFFu) <= kInfinityBits;
  return static_cast<uint16_t>(is_number ? rounded : nan);
}

OCTAVO_HOST_DEVICE static inline float decode_f16(uint16_t value) {
  const int32_t magnitude = value & 0x7FFF;
  const int32_t finite = code_to_bits<10, 15>(magnitude);
  const int32_t nan = kQuietNanBits | ((magnitude & 0x3FF) << 13);
  const int32_t special = magnitude == 0x7C00 ? kInfinityBits : nan;
  const int32_t bits = magnitude < 0x7C00 ? finite : special;
  return bits_float(static_cast<int32_t>(static_cast<uint32_t>(value & 0x8000) << 16) | bits);
}

template <int32_t kLargest>
OCTAVO_HOST_DEVICE static inline uint16_t encode_f16_limited(float value) {
  const int32_t bits = float_bits(value);
  const int32_t magnitude = bits & kMagnitudeMask;
  const int32_t clamped = magnitude < kLargest ? magnitude : kLargest;
  const int32_t finite = round_to_code<10, 15>(clamped);
  const int32_t nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
  const int32_t code = magnitude > kInfinityBits ? nan : finite;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000) | code);
}

/* Values from 65520 on round to 65536, which has the code of infinity. */
OCTAVO_HOST_DEVICE static inline uint16_t encode_f16(float value) {
  return encode_f16_limited<0x47800000>(value);
}

OCTAVO_HOST_DEVICE static inline uint16_t encode_f16_saturating(float value) {
  return encode_f16_limited<0x477FE000>(value);
}

}  // namespace octavo
