/* kernels/cpu/level_states.h: blocks of optimizer states in vectors; included by level.cpp only.
 *
 * level_expanded.h estimates most groups of dynamic range expansion. The others take a logarithm
 * and a power in fp64 for every element. Here they are the operations of kernels/format/power.h in
 * the same order, for as many elements as a vector holds; what that file does by branches and by
 * integers of 64 bits is done by selection and by exact conversions, since older instruction sets
 * lack the rest. Groups whose numbers are not those of a state that was ever written go through the
 * functions of kernels/format.
 */
#pragma once

#include "kernels/cpu/level_expanded.h"
#include "kernels/cpu/level_expanded_decode.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/update_loops.h"

namespace octavo {
namespace {

typedef uint64_t DoubleBits __attribute__((vector_size(kDoubles * sizeof(uint64_t))));
typedef int64_t LongLanes __attribute__((vector_size(kDoubles * sizeof(int64_t))));

inline Doubles all_doubles(double value) {
  return Doubles{} + value;
}

/* log2_of for normal numbers above 0. */
inline Doubles log2_lanes(Doubles values) {
  constexpr uint64_t kRootBits = 0x3FE6A09E667F3BCD; /* sqrt(1/2) */
  constexpr uint64_t kOneBits = 0x3FF0000000000000;
  constexpr uint64_t kMantissa = 0x000FFFFFFFFFFFFF;
  const DoubleBits shifted = reinterpret_cast<DoubleBits>(values) + (kOneBits - kRootBits);
  /* Beside 2^52 the low bits of a double are an integer. */
  const DoubleBits raised = (shifted >> 52) | 0x4330000000000000;
  const Doubles exponent = reinterpret_cast<Doubles>(raised) - (0x1p52 + 1023.0);
  const Doubles m = reinterpret_cast<Doubles>((shifted & kMantissa) + kRootBits);
  const Doubles t = (m - 1.0) / (m + 1.0);
  const Doubles square = t * t;
  Doubles sum = {};
#pragma GCC unroll 11
  for (int term = 23; term >= 3; term -= 2) sum = square * sum + 1.0 / term;
  sum = square * sum;
  constexpr double kTwoOverLn2 = 2.8853900817779268;
  const Doubles scaled = kTwoOverLn2 * t;
  return (scaled * sum + scaled) + exponent;
}

/* exp2_of for every number but NaN. */
inline Doubles exp2_lanes(Doubles values) {
  const Doubles low_limit = all_doubles(-1022.0);
  const Doubles high_limit = all_doubles(1023.0);
  Doubles limited = values < low_limit ? low_limit : values;
  /* What is outside is computed as something inside and replaced at the end. */
  limited = values >= 1024.0 ? high_limit : limited;
  const Doubles toward = limited + (limited < 0.0 ? all_doubles(-0.5) : all_doubles(0.5));
  const IntLanes nearest = __builtin_convertvector(toward, IntLanes);
  constexpr double kLn2 = 0.69314718055994531;
  const Doubles x = (limited - __builtin_convertvector(nearest, Doubles)) * kLn2;
  Doubles sum = all_doubles(1.0);
#pragma GCC unroll 15
  for (int term = 15; term >= 1; --term) sum = (x * (1.0 / term)) * sum + 1.0;
  /* 2^1024 does not exist, so the power of two is applied in two halves. */
  const IntLanes half = nearest / 2;
  const LongLanes low = __builtin_convertvector(half + 1023, LongLanes) << 52;
  const LongLanes high = __builtin_convertvector(nearest - half + 1023, LongLanes) << 52;
  Doubles power = (sum * reinterpret_cast<Doubles>(low)) * reinterpret_cast<Doubles>(high);
  power = values < low_limit ? Doubles{} : power;
  return values >= 1024.0 ? all_doubles(__builtin_inf()) : power;
}

/* Whether both numbers next to the center belong to a group that was written. */
inline bool is_written(const ExpandedGroup &g) {
  return g.scale_inv >= 0x1p-126f && g.scale_inv <= kFloatMax && g.exponent >= 0.0625f &&
         g.exponent <= 16.0f && g.center >= 0x1p-149f && g.center <= kFloatMax;
}

/* fl32 of expand / scale_inv with the sign of the value, what encode_expanded casts; values that
 * take no part stay. */
void expand_lanes(const ExpandedGroup &g, float *values) {
  const Floats in = *reinterpret_cast<const FloatsInMemory *>(values);
  const IntLanes bits = reinterpret_cast<IntLanes>(in);
  const IntLanes magnitude = bits & kMagnitudeMask;
  const IntLanes is_usable = (magnitude > 0) & (magnitude < kInfinityBits);
  const Floats usable = is_usable ? reinterpret_cast<Floats>(magnitude) : Floats{} + 1.0f;
  const Doubles ratio = __builtin_convertvector(usable, Doubles) / static_cast<double>(g.center);
  const Doubles power = exp2_lanes(static_cast<double>(g.exponent) * log2_lanes(ratio));
  const Floats quotient = __builtin_convertvector(power, Floats) / g.scale_inv;
  const IntLanes joined = reinterpret_cast<IntLanes>(quotient) | (bits & ~kMagnitudeMask);
  *reinterpret_cast<FloatsInMemory *>(values) = is_usable ? reinterpret_cast<Floats>(joined) : in;
}

/* The value of decoded codes, in place. */
void contract_lanes(const ExpandedGroup &g, float *values) {
  const Floats in = *reinterpret_cast<const FloatsInMemory *>(values);
  const IntLanes bits = reinterpret_cast<IntLanes>(in);
  const IntLanes magnitude = bits & kMagnitudeMask;
  const IntLanes is_usable = (magnitude > 0) & (magnitude < kInfinityBits);
  const Floats usable = is_usable ? reinterpret_cast<Floats>(magnitude) : Floats{} + 1.0f;
  const Doubles scaled =
      __builtin_convertvector(usable, Doubles) * static_cast<double>(g.scale_inv);
  const Doubles power = exp2_lanes(log2_lanes(scaled) / static_cast<double>(g.exponent));
  Doubles value = power * static_cast<double>(g.center);
  const Doubles largest = all_doubles(static_cast<double>(kFloatMax));
  const Doubles smallest = all_doubles(0x1p-149);
  value = value > largest ? largest : value;
  value = value < smallest ? smallest : value;
  const Floats narrow = __builtin_convertvector(value, Floats);
  const IntLanes joined = reinterpret_cast<IntLanes>(narrow) | (bits & ~kMagnitudeMask);
  *reinterpret_cast<FloatsInMemory *>(values) = is_usable ? reinterpret_cast<Floats>(joined) : in;
}

static_assert(kStateGroup % kDoubles == 0);

void encode_expanded_row(const ExpandedGroup &g, const float *values, int64_t n, uint8_t *codes) {
  if (!is_written(g)) {
    for (int64_t i = 0; i < n; ++i) codes[i] = encode_expanded(g, values[i]);
    return;
  }
  if (can_estimate(g)) {
    const ExpandedEstimate e = {1.0f / g.center, g.exponent,
                                static_cast<float>(log2_of(static_cast<double>(g.scale_inv)))};
    for (int64_t first = 0; first < n; first += kStateGroup)
      encode_estimated(g, e, values + first, n - first < kStateGroup ? n - first : kStateGroup,
                       codes + first);
    return;
  }
  for (int64_t first = 0; first < n; first += kStateGroup) {
    const int64_t count = n - first < kStateGroup ? n - first : kStateGroup;
    float expanded[kStateGroup] = {};
    for (int64_t i = 0; i < count; ++i) expanded[i] = values[first + i];
    for (int64_t i = 0; i < count; i += kDoubles) expand_lanes(g, expanded + i);
    cast_row(OCTAVO_E4M3FN, expanded, count, 1.0f, codes + first);
  }
}

void decode_expanded_row(const ExpandedGroup &g, const uint8_t *codes, int64_t n, float *values) {
  if (!is_written(g)) {
    for (int64_t i = 0; i < n; ++i) values[i] = decode_expanded(g, codes[i]);
    return;
  }
  const double k = static_cast<double>(g.exponent);
  const float sixteenths = g.exponent * 16.0f;
  if (sixteenths == static_cast<float>(static_cast<int>(sixteenths))) {
    const double *powers = expanded_powers(static_cast<int>(sixteenths));
    const double factor =
        exp2_of(log2_of(static_cast<double>(g.scale_inv)) / k) * static_cast<double>(g.center);
    if (factor * powers[1] >= 0x1p-126 && factor * powers[126] <= 0x1p127)
      return decode_estimated(g, powers, factor, codes, n, values);
  }
  for (int64_t first = 0; first < n; first += kStateGroup) {
    const int64_t count = n - first < kStateGroup ? n - first : kStateGroup;
    float decoded[kStateGroup] = {};
    load_row(OCTAVO_E4M3FN, codes + first, count, decoded);
    for (int64_t i = 0; i < count; i += kDoubles) contract_lanes(g, decoded + i);
    for (int64_t i = 0; i < count; ++i) values[first + i] = decoded[i];
  }
}

/* include_value for a row: bits of magnitudes are ordered as the magnitudes are. */
BlockRange range_of_row(const float *values, int64_t n) {
  int32_t largest = 0;
  int32_t smallest = kInfinityBits;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    const int32_t finite = magnitude < kInfinityBits ? magnitude : 0;
    const int32_t nonzero = magnitude > 0 ? magnitude : kInfinityBits;
    largest = finite > largest ? finite : largest;
    smallest = nonzero < smallest ? nonzero : smallest;
  }
  return {bits_float(largest), bits_float(largest == 0 ? 0 : smallest)};
}

void encode_flat_row(float scale_inv, const float *values, int64_t n, uint8_t *codes) {
  for (int64_t first = 0; first < n; first += kStateGroup) {
    const int64_t count = n - first < kStateGroup ? n - first : kStateGroup;
    float scaled[kStateGroup];
    for (int64_t i = 0; i < count; ++i) scaled[i] = values[first + i] / scale_inv;
    cast_values(OCTAVO_E4M3FN, scaled, count, 1.0f, codes + first);
  }
}

constexpr StateLoops kStateLoops = {&range_of_row, &encode_flat_row, &encode_expanded_row,
                                    &decode_expanded_row};

}  // namespace
}  // namespace octavo
