/* tests/kernels/exact_encoder.h: rounding fp32 to a small format in exact integers.
 *
 * An independent oracle: it shares no line with kernels/format and uses no floating point at all.
 */
#ifndef OCTAVO_TESTS_KERNELS_EXACT_ENCODER_H
#define OCTAVO_TESTS_KERNELS_EXACT_ENCODER_H

#include <cstdint>

namespace octavo::test {

struct SmallFormat {
  int mantissa_bits;
  int bias;
  uint32_t largest; /* code of the largest finite value, or of infinity when that is wanted */
  int sign_bit;
};

constexpr SmallFormat kE4m3 = {3, 7, 0x7E, 7};
constexpr SmallFormat kE5m2 = {2, 15, 0x7B, 7};
constexpr SmallFormat kF16 = {10, 15, 0x7C00, 15};
constexpr SmallFormat kF16Saturating = {10, 15, 0x7BFF, 15};

/* The code of the fp32 number with these bits, which must not be NaN. */
inline uint32_t exact_encode(const SmallFormat &format, uint32_t bits) {
  const uint32_t sign = (bits >> 31) << format.sign_bit;
  const int field = static_cast<int>((bits >> 23) & 0xFF);
  if (field == 0xFF) return sign | format.largest;
  /* The number is significand * 2^exponent. */
  const uint64_t significand = (bits & 0x7FFFFF) | (field == 0 ? 0u : 0x800000u);
  const int exponent = (field == 0 ? 1 : field) - 150;
  if (significand == 0) return sign;
  int top = 23; /* the leading bit */
  while ((significand >> top) == 0) --top;
  /* The unit of the target near this number, never below that of its subnormals. */
  const int smallest_exponent = 1 - format.bias;
  const int leading = exponent + top < smallest_exponent ? smallest_exponent : exponent + top;
  const int unit = leading - format.mantissa_bits;
  const int dropped = unit - exponent; /* bits below the unit */
  uint64_t count = 0;                  /* the number in units, rounded to nearest even */
  if (dropped <= 0) {
    count = significand << -dropped;
  } else if (dropped < 60) {
    const uint64_t rest = significand & ((uint64_t{1} << dropped) - 1);
    const uint64_t half = uint64_t{1} << (dropped - 1);
    count = significand >> dropped;
    if (rest > half || (rest == half && (count & 1) == 1)) ++count;
  }
  /* `count` has at most mantissa_bits + 1 bits, or is the next power of two: the sum carries. */
  const uint64_t binade = static_cast<uint64_t>(leading - smallest_exponent);
  const uint64_t code = (binade << format.mantissa_bits) + count;
  return sign | static_cast<uint32_t>(code > format.largest ? format.largest : code);
}

}  // namespace octavo::test

#endif
