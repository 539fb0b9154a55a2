/* kernels/format/rounding.h: roundings besides the one to nearest even, see
 * octavo/draft/rounding.h.
 *
 * A moment without gradient is multiplied by beta1 in every step. To nearest even, 0.9 times one of
 * the codes 1 to 4 of E4M3 is that code again, so the moment never ends while its second moment
 * decays, and the quotient of both grows without a limit. SHRINKING keeps at least half of each
 * decay: after t steps without gradient a moment is at most ((1 + beta1) / 2)^t of what it was.
 * Where the gradient is more than half of the moment, nothing is lost by a code that stays, and
 * codes that always gave way would make moments too small.
 */
#pragma once

#include "kernels/format/block_state.h"
#include "kernels/format/float16.h"

namespace octavo {

/* The share of an old moment that its new value is below where it decays. */
OCTAVO_HOST_DEVICE static inline float decay_limit(float beta1) {
  return 0.5f + 0.5f * beta1;
}

/* Whether a code that stands for `stored` undoes more than half of the decay from `old` to `value`.
 * The code is then at least 1, and the next one toward zero stands for no more than `value`. */
OCTAVO_HOST_DEVICE static inline bool undoes_decay(float stored, float value, float old,
                                                   float limit) {
  const float from = absolute(old);
  const float to = absolute(value);
  const float reached = absolute(stored);
  return (to < from) & (to <= limit * from) & (reached + reached > to + from);
}

/* ---- Random bits from a counter: the same on every device, in any order. ---- */

struct RandomKey {
  uint32_t first;
  uint32_t second;
};

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
OCTAVO_HOST_DEVICE static inline uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Of one tensor of an item in one step. */
OCTAVO_HOST_DEVICE static inline RandomKey random_key(uint64_t key, int32_t step, uint32_t tensor) {
  const uint64_t place = static_cast<uint64_t>(static_cast<uint32_t>(step)) << 2 | tensor;
  const uint64_t mixed = mix64(mix64(key + 0x9E3779B97F4A7C15u) ^ place);
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

/* A bijection of 32 bits without visible bias (lowbias32 of Wellons' hash prospector). */
OCTAVO_HOST_DEVICE static inline uint32_t mix32(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

/* Of element low + high * 2^32. */
OCTAVO_HOST_DEVICE static inline uint32_t random_bits(RandomKey k, uint32_t low, uint32_t high) {
  return mix32(mix32(low ^ k.first) + (k.second ^ high * 0x9E3779B1u));
}

OCTAVO_HOST_DEVICE static inline uint32_t random_bits(RandomKey k, uint64_t element) {
  return random_bits(k, static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32));
}

/* ---- Stochastic rounding. ---- */

/* As round_to_code: adds random bits below the last one that is kept. A subnormal result counts in
 * 2^-kDropped of its unit, and what is below that is cut off. */
template <int kMantissaBits, int kBias>
OCTAVO_HOST_DEVICE static inline int32_t round_by_bits(int32_t magnitude, uint32_t random) {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr int32_t kSmallestNormal = (128 - kBias) << 23;
  constexpr int32_t kPower = (127 + kDropped + kBias + kMantissaBits - 1) << 23;
  const int32_t added = static_cast<int32_t>(random & ((1u << kDropped) - 1));
  const int32_t normal = ((magnitude + added) >> kDropped) - ((127 - kBias) << kMantissaBits);
  const int32_t small = magnitude < kSmallestNormal ? magnitude : kSmallestNormal;
  const int32_t units = static_cast<int32_t>(bits_float(small) * bits_float(kPower));
  return magnitude < kSmallestNormal ? (units + added) >> kDropped : normal;
}

template <int kMantissaBits, int kBias, int32_t kLargest>
OCTAVO_HOST_DEVICE static inline uint8_t encode_float8_random(float value, uint32_t random) {
  const int32_t bits = float_bits(value);
  const int32_t magnitude = bits & kMagnitudeMask;
  const int32_t clamped = magnitude < kLargest ? magnitude : kLargest;
  const int32_t finite = round_by_bits<kMantissaBits, kBias>(clamped, random);
  const int32_t code = magnitude > kInfinityBits ? 0x7F : finite;
  return static_cast<uint8_t>(((bits >> 24) & 0x80) | code);
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_e4m3_random(float value, uint32_t random) {
  return encode_float8_random<3, 7, 0x43E00000>(value, random);
}

OCTAVO_HOST_DEVICE static inline uint8_t encode_e5m2_random(float value, uint32_t random) {
  return encode_float8_random<2, 15, 0x47600000>(value, random);
}

/* round_codes of octavo/draft/rounding.h, for element low + high * 2^32 of the codes. Numbers that
 * follow from the value, too, differ between two batches of one step. NaN has no sign: devices do
 * not agree on that of a quotient. */
OCTAVO_HOST_DEVICE static inline uint8_t round_code(bool is_e4m3, float value, float scale_inv,
                                                    RandomKey key, uint32_t low, uint32_t high) {
  const float scaled = value / scale_inv;
  const uint32_t random = random_bits(key, low, high ^ static_cast<uint32_t>(float_bits(value)));
  const uint8_t code =
      is_e4m3 ? encode_e4m3_random(scaled, random) : encode_e5m2_random(scaled, random);
  return is_nan(scaled) ? uint8_t{0x7F} : code;
}

OCTAVO_HOST_DEVICE static inline uint8_t round_code(bool is_e4m3, float value, float scale_inv,
                                                    RandomKey key, uint64_t place) {
  return round_code(is_e4m3, value, scale_inv, key, static_cast<uint32_t>(place),
                    static_cast<uint32_t>(place >> 32));
}

/* The number of a step as a slot holds it. What is none, such as the memory of a host that is being
 * tried out, counts as 0. */
OCTAVO_HOST_DEVICE static inline int32_t step_of(const float *count) {
  const float step = count == nullptr ? 0.0f : *count;
  return step >= 0.0f && step < 0x1p24f ? static_cast<int32_t>(step) : 0;
}

/* The number after it: f32 holds whole numbers below 2^24. */
OCTAVO_HOST_DEVICE static inline float next_count(float count) {
  return count < 0x1p24f - 1.0f ? count + 1.0f : 0.0f;
}

/* kLargest: 65504 with a scale, which saturates; 65536, the code of infinity, without. */
template <int32_t kLargest>
OCTAVO_HOST_DEVICE static inline uint16_t encode_f16_random(float value, uint32_t random) {
  const int32_t bits = float_bits(value);
  const int32_t magnitude = bits & kMagnitudeMask;
  const int32_t clamped = magnitude < kLargest ? magnitude : kLargest;
  const int32_t finite = round_by_bits<10, 15>(clamped, random);
  const int32_t nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
  const int32_t code = magnitude > kInfinityBits ? nan : finite;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000) | code);
}

constexpr int32_t kSaturatedF16 = 0x477FE000;
constexpr int32_t kPlainF16 = 0x47800000;

OCTAVO_HOST_DEVICE static inline uint16_t encode_bf16_random(float value, uint32_t random) {
  const uint32_t bits = static_cast<uint32_t>(float_bits(value));
  const uint32_t rounded = (bits + (random & 0xFFFFu)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  const bool is_number = static_cast<int32_t>(bits & 0x7FFFFFFFu) <= kInfinityBits;
  return static_cast<uint16_t>(is_number ? rounded : nan);
}

/* The codes of a group are not equally far apart, so the probability comes from what both of them
 * stand for. */
OCTAVO_HOST_DEVICE static inline uint8_t encode_expanded_random(const ExpandedGroup &g, float value,
                                                                uint32_t random) {
  const float magnitude = absolute(value);
  if (!is_usable_amax(magnitude)) return encode_e4m3(value);
  const uint8_t low = encode_e4m3_random(expand(g, magnitude) / g.scale_inv, 0);
  const uint8_t sign = static_cast<uint8_t>(float_bits(value) < 0 ? 0x80 : 0);
  if (low >= 0x7E) return static_cast<uint8_t>(low | sign);
  const float bottom = decode_expanded(g, low);
  const float top = decode_expanded(g, static_cast<uint8_t>(low + 1));
  const float share = (magnitude - bottom) / (top - bottom);
  const float drawn = static_cast<float>(static_cast<int32_t>(random >> 8)) * 0x1p-24f;
  return static_cast<uint8_t>((drawn < share ? low + 1 : low) | sign);
}

}  // namespace octavo
