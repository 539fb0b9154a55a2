/* kernels/format/block_state.h: optimizer states as E4M3 codes with one scale for a short run.
 *
 * FLAT_256 divides by the block's scale_inv (torchao's low-bit optimizers). EXPANDED_128 raises the
 * values to a power first, so that the group's smallest and largest value both fit (COAT, dynamic
 * range expansion): a positive value never becomes code 0 there. A value of 0 stays code 0 and does
 * not count as the smallest; COAT takes 1e-30 for it, which spends the range on a value that nobody
 * has. Infinity and NaN take no part in a scale and are cast like everywhere: 448 and NaN.
 */
#ifndef OCTAVO_KERNELS_FORMAT_BLOCK_STATE_H
#define OCTAVO_KERNELS_FORMAT_BLOCK_STATE_H

#include "kernels/format/float8.h"
#include "kernels/format/power.h"

namespace octavo {

/* What a block's scale is made of: its largest and smallest absolute value that is finite and not
 * 0; both 0 where there is none. */
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

/* FLAT_256: the block's scale_inv, never 0. */
OCTAVO_HOST_DEVICE static inline float flat_scale_inv(BlockRange range) {
  return (range.largest > 1e-12f ? range.largest : 1e-12f) / kMaxE4m3;
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_flat(float scale_inv, float value) {
  return encode_e4m3(value / scale_inv);
}

/* The three numbers beside a group of EXPANDED_128, in the order in which they are stored. */
struct ExpandedGroup {
  float scale_inv;
  float exponent; /* k, a multiple of 1/16 from 1/16 to 16 */
  float center;   /* c, the geometric mean of the smallest and the largest value */
};

/* (magnitude / c)^k for a finite magnitude above 0. */
OCTAVO_HOST_DEVICE static inline float expand(const ExpandedGroup &g, float magnitude) {
  const double ratio = static_cast<double>(magnitude) / static_cast<double>(g.center);
  return static_cast<float>(exp2_of(product(static_cast<double>(g.exponent), log2_of(ratio))));
}

OCTAVO_HOST_DEVICE static inline ExpandedGroup expanded_group(BlockRange range) {
  ExpandedGroup g = {1.0f, 1.0f, 1.0f};
  if (range.largest == 0.0f) return g;
  const double largest = static_cast<double>(range.largest);
  const double smallest = static_cast<double>(range.smallest);
  /* The product of two fp32 numbers is exact in fp64 and cannot leave its range. */
  g.center = static_cast<float>(square_root_of(largest * smallest));
  /* Half of the codes' range, so that the smallest value keeps a code above 1. */
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

/* Code 0 is 0 whatever stands beside it, so states that begin as zero bytes are right. No other
 * code becomes 0 or infinity. */
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

#endif
