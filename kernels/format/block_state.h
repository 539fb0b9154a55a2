/* kernels/format/block_state.h: optimizer states as E4M3 codes with one scale per block of
 * elements.
 *
 * FLAT_256 divides by the scale_inv of the block (torchao's low-bit optimizers). EXPANDED_128 first
 * raises the values to a power, so that the smallest and the largest value of the group both fit
 * (COAT, dynamic range expansion); a positive value never becomes code 0. A value of 0 becomes code
 * 0 and does not count as the smallest. COAT counts it as 1e-30, which wastes range on a value that
 * does not occur. Infinity and NaN do not affect the scale and are cast as usual, to 448 and NaN.
 */
#pragma once

#include "kernels/format/float8.h"
#include "kernels/format/power.h"

namespace octavo {

/* The input of a block's scale: its largest and smallest absolute value, ignoring 0, infinity and
 * NaN. Both are 0 if there is none. */
struct BlockRange {
  float largest;
  float smallest;
};

OCTAVO_HOST_DEVICE static inline void include_value(BlockRange *range, float value) {
  const float magnitude = absolute(value);
  if (!is_usable_amax(magnitude)) return;
  if (magnitude > range->largest) range->largest = magnitude;
  if (range->smallest == 0.0f || magnitude < range->smallest) range->smallest = magnitude;
}

/* FLAT_256: the scale_inv of the block, never 0. */
OCTAVO_HOST_DEVICE static inline float flat_scale_inv(BlockRange range) {
  return (range.largest > 1e-12f ? range.largest : 1e-12f) / kMaxE4m3;
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_flat(float scale_inv, float value) {
  const float quotient = value / scale_inv;
  return encode_e4m3(is_nan(value) ? value : quotient); /* a quotient need not keep its sign */
}

/* The three numbers stored for a group of EXPANDED_128, in this order. */
struct ExpandedGroup {
  float scale_inv;
  float exponent; /* k, a multiple of 1/16 in [1/16, 16] */
  float center;   /* c, the geometric mean of the smallest and largest value */
};

/* (magnitude / c)^k, for a finite magnitude > 0. */
OCTAVO_HOST_DEVICE static inline float expand(const ExpandedGroup &g, float magnitude) {
  const double ratio = static_cast<double>(magnitude) / static_cast<double>(g.center);
  return static_cast<float>(exp2_of(product(static_cast<double>(g.exponent), log2_of(ratio))));
}

OCTAVO_HOST_DEVICE static inline ExpandedGroup expanded_group(BlockRange range) {
  ExpandedGroup g = {1.0f, 1.0f, 1.0f};
  if (range.largest == 0.0f) return g;
  const double largest = static_cast<double>(range.largest);
  const double smallest = static_cast<double>(range.smallest);
  /* In fp64, the product of two fp32 numbers is exact and cannot overflow or underflow. */
  g.center = static_cast<float>(square_root_of(largest * smallest));
  /* Uses half of the range of the codes, so that the smallest value gets a code above 1. */
  constexpr double kLog2Range = 16.614709844115208; /* log2(448^2 / 2) */
  const double sixteenths = product(kLog2Range / log2_of(largest / smallest), 16.0);
  int32_t k = 256;
  if (sixteenths < 256.0) k = static_cast<int32_t>(sixteenths);
  g.exponent = static_cast<float>(k < 1 ? 1 : k) / 16.0f;
  g.scale_inv = expand(g, range.largest) / kMaxE4m3;
  return g;
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_expanded(const ExpandedGroup &g, float value) {
  const float magnitude = absolute(value);
  if (!is_usable_amax(magnitude)) return encode_e4m3(value);
  const uint8_t code = encode_e4m3(expand(g, magnitude) / g.scale_inv);
  return static_cast<uint8_t>(code | (float_bits(value) < 0 ? 0x80 : 0));
}

/* Code 0 decodes to 0 for any group, so states initialized with zero bytes are valid. No other code
 * decodes to 0 or infinity. */
OCTAVO_HOST_DEVICE static inline float decode_expanded(const ExpandedGroup &g, uint8_t code) {
  const float decoded = decode_e4m3(code);
  if (decoded == 0.0f || is_nan(decoded)) return decoded;
  const double scaled = static_cast<double>(absolute(decoded)) * static_cast<double>(g.scale_inv);
  const double power = exp2_of(log2_of(scaled) / static_cast<double>(g.exponent));
  double magnitude = product(power, static_cast<double>(g.center));
  if (magnitude > static_cast<double>(kFloatMax)) magnitude = static_cast<double>(kFloatMax);
  if (magnitude < 0x1p-149) magnitude = 0x1p-149;
  const float value = static_cast<float>(magnitude);
  return decoded < 0.0f ? -value : value;
}

}  // namespace octavo
