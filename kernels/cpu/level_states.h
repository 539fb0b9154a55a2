/* kernels/cpu/level_states.h: blocks of optimizer states; included by level.cpp only. */
#pragma once

#include "kernels/cpu/expanded_powers.h"
#include "kernels/cpu/level_cast.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/level_update_values.h"
#include "kernels/cpu/update_loops.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

/* EXPANDED_128 without a logarithm and a power in fp64 for every element.
 *
 * Encoding here, and decoding below, estimates the result of
 * kernels/format/block_state.h with a bound on the relative error. A result of that definition
 * is between the estimate times (1 - slack) and times (1 + slack), and rounding is monotonic:
 * where both round to the same number, the definition does. Elsewhere, which is one element in
 * thousands, the definition itself is computed.
 *
 * log2 of the quotient, y = k (log2 x - log2 c) - log2 scale_inv, in fp32 for k in [1/4, 16]. k
 * log2(x / c) is at most 8.31 and log2 scale_inv in [-8.81, 0]. x times the reciprocal of c has
 * two roundings, 1.8e-7 of the logarithm; the series for log2 m, abs(log2 m) <= 1/2, is off by
 * 4e-7 of it at most. Times k <= 16 that is 6.1e-6; the roundings of products and sums of
 * numbers up to 8.81 add 2.1e-6. So 2^y is off by 8.2e-6 ln 2 = 5.7e-6, the polynomial of exp2
 * adds 3e-7, and the definition's own two roundings in fp32 add 1.2e-7. kEncodeSlack is 2^-16 =
 * 15e-6.
 *
 * Values outside of the group's range give any y. The definition casts them to 448 from y =
 * 8.81 on, and to 0 below y = -10. So y is kept in [-30, 30], where exp2's exponent stays in
 * its field. Where x times the reciprocal overflows or is subnormal, k >= 1/4 takes y out of
 * [-22, 30]. */

constexpr float kEncodeSlack = 0x1p-16f;
constexpr float kLargestPower = 30.0f;
constexpr int64_t kStateGroup = 128;

typedef float Estimates __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t EstimateBits __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef uint32_t EstimateWords __attribute__((vector_size(kLanes * sizeof(uint32_t))));
typedef float EstimatesInMemory
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

/* What a group's values are estimated by. */
struct ExpandedEstimate {
  float center_inv;
  float exponent;
  float log2_scale_inv;
};

/* Whether the bounds above hold, and nothing in between is subnormal or overflows. */
inline bool can_estimate(const ExpandedGroup &g) {
  return g.exponent >= 0.25f && g.exponent <= 16.0f && g.center >= 0x1p-80f &&
         g.center <= 0x1p80f && g.scale_inv >= 0x1p-9f && g.scale_inv <= 1.0f;
}

inline Estimates all_estimates(float value) {
  return Estimates{} + value;
}

/* Vectors that go through the steps below side by side, since each step waits for the one before
 * it. */
constexpr int kTogether = 4;
static_assert(kStateGroup % (kTogether * kLanes) == 0);

/* a * b + c, with one rounding where the level can: an estimate may be better than its bound. */
inline Estimates near_sum(Estimates a, Estimates b, Estimates c) {
#ifdef OCTAVO_CAST_VECTORS
  return fused_sum(a, b, c);
#else
  return a * b + c;
#endif
}

/* log2 of positive normal numbers. */
inline void log2_estimates(Estimates *values) {
  constexpr int32_t kRootBits = 0x3F3504F3; /* sqrt(1/2) */
  Estimates exponent[kTogether], t[kTogether], square[kTogether], sum[kTogether];
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    const EstimateBits shifted = reinterpret_cast<EstimateBits>(values[i]) - kRootBits;
    exponent[i] = __builtin_convertvector(shifted >> 23, Estimates);
    const Estimates m = reinterpret_cast<Estimates>((shifted & 0x007FFFFF) + kRootBits);
    t[i] = (m - 1.0f) / (m + 1.0f);
  }
  /* 2 / ln 2 * (t + t^3/3 + t^5/5 + t^7/7), abs(t) < 0.172. */
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) square[i] = t[i] * t[i];
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i)
    sum[i] = near_sum(square[i], all_estimates(0.41219858f), all_estimates(0.57707802f));
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i)
    sum[i] = near_sum(sum[i], square[i], all_estimates(0.96179669f));
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i)
    sum[i] = near_sum(sum[i], square[i], all_estimates(2.88539008f));
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) values[i] = near_sum(t[i], sum[i], exponent[i]);
}

/* 2^value for abs(value) <= kLargestPower. */
inline void exp2_estimates(Estimates *values) {
  constexpr float kMagic = 0x1.8p23f; /* rounds to an integer, which is in the low bits then */
  constexpr float kTerms[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  Estimates shifted[kTogether], x[kTogether], sum[kTogether];
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    shifted[i] = values[i] + kMagic;
    x[i] = (values[i] - (shifted[i] - kMagic)) * 0.69314718f;
    sum[i] = all_estimates(1.0f / 720);
  }
#pragma GCC unroll 6
  for (const float term : kTerms) {
#pragma GCC unroll 4
    for (int i = 0; i < kTogether; ++i) sum[i] = near_sum(sum[i], x[i], all_estimates(term));
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    values[i] = reinterpret_cast<Estimates>(reinterpret_cast<EstimateWords>(sum[i]) +
                                            (reinterpret_cast<EstimateWords>(shifted[i]) << 23));
  }
}

/* The magnitudes of quotients that kTogether vectors of values stand for; any number for values
 * that take no part. */
inline void estimate_quotients(const ExpandedEstimate &e, const float *values,
                               Estimates *quotients) {
  const EstimatesInMemory *in = reinterpret_cast<const EstimatesInMemory *>(values);
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    const EstimateBits magnitude =
        reinterpret_cast<EstimateBits>(Estimates(in[i])) & kMagnitudeMask;
    const EstimateBits is_usable = (magnitude > 0) & (magnitude < kInfinityBits);
    quotients[i] =
        (is_usable ? reinterpret_cast<Estimates>(magnitude) : all_estimates(1.0f)) * e.center_inv;
  }
  log2_estimates(quotients);
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    const Estimates y = quotients[i] * e.exponent - e.log2_scale_inv;
    const Estimates largest = all_estimates(kLargestPower);
    quotients[i] = y > largest ? largest : y < -largest ? -largest : y;
  }
  exp2_estimates(quotients);
}

constexpr int64_t kEstimated = kTogether * kLanes; /* values at once */

/* The codes of kEstimated magnitudes with the signs of `values`. */
inline void cast_estimates(const Estimates *magnitudes, const float *values, uint8_t *codes) {
  Estimates joined[kTogether];
  for (int i = 0; i < kTogether; ++i) {
    const EstimateBits signs = reinterpret_cast<EstimateBits>(Estimates(
                                   reinterpret_cast<const EstimatesInMemory *>(values)[i])) &
                               ~kMagnitudeMask;
    joined[i] = reinterpret_cast<Estimates>(reinterpret_cast<EstimateBits>(magnitudes[i]) | signs);
  }
  cast_values(OCTAVO_E4M3FN, reinterpret_cast<const float *>(joined), kEstimated, 1.0f, codes);
}

/* Codes by quotients a little smaller and, where these differ, by quotients a little larger; gives
 * whether all codes are sure. */
inline bool encode_both(const Estimates *smaller, const Estimates *larger, const float *values,
                        uint8_t *low, uint8_t *high) {
#ifdef OCTAVO_CAST_VECTORS
  const EncoderE4m3 encode;
  Bits raw[kTogether], below[kTogether];
  EstimateBits differ = {};
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    const Bits above = encode(reinterpret_cast<Bits>(larger[i]));
    raw[i] = load_bits(values + i * kLanes);
    below[i] = encode(reinterpret_cast<Bits>(smaller[i]));
    /* The lowest byte is the code. */
    differ |= reinterpret_cast<EstimateBits>(above) ^ reinterpret_cast<EstimateBits>(below[i]);
  }
  const Packer<false> pack;
  store_bits(low, pack(below, raw));
  if (largest_lane(reinterpret_cast<Bits>(differ & 0xFF)) == 0) return true;
  cast_estimates(larger, values, high);
  return false;
#else
  cast_estimates(smaller, values, low);
  cast_estimates(larger, values, high);
  uint8_t differ = 0;
  for (int64_t i = 0; i < kEstimated; ++i) differ |= low[i] ^ high[i];
  return differ == 0;
#endif
}

/* encode_expanded of kEstimated values, none of them NaN. */
inline void encode_numbers(const ExpandedGroup &g, const ExpandedEstimate &e, const float *values,
                           uint8_t *codes) {
  const EstimatesInMemory *in = reinterpret_cast<const EstimatesInMemory *>(values);
  Estimates quotients[kTogether], smaller[kTogether], larger[kTogether];
  estimate_quotients(e, values, quotients);
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    const EstimateBits magnitude =
        reinterpret_cast<EstimateBits>(Estimates(in[i])) & kMagnitudeMask;
    const EstimateBits is_usable = (magnitude > 0) & (magnitude < kInfinityBits);
    const Estimates stays = reinterpret_cast<Estimates>(magnitude);
    smaller[i] = is_usable ? quotients[i] * (1.0f - kEncodeSlack) : stays;
    larger[i] = is_usable ? quotients[i] * (1.0f + kEncodeSlack) : stays;
  }
  uint8_t others[kEstimated];
  if (__builtin_expect(encode_both(smaller, larger, values, codes, others), 1)) return;
  for (int64_t i = 0; i < kEstimated; ++i)
    if (codes[i] != others[i]) codes[i] = encode_expanded(g, values[i]);
}

/* encode_expanded for a group that can be estimated; count is at most kStateGroup. */
inline void encode_estimated(const ExpandedGroup &g, const ExpandedEstimate &e, const float *values,
                             int64_t count, uint8_t *codes) {
  float padded[kStateGroup];
  uint8_t padded_codes[kStateGroup];
  uint8_t *to = codes;
  if (count < kStateGroup) {
    for (int64_t i = 0; i < kStateGroup; ++i) padded[i] = i < count ? values[i] : 0.0f;
    values = padded;
    to = padded_codes;
  }
  int32_t highest = 0;
  for (int64_t i = 0; i < kStateGroup; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    highest = magnitude > highest ? magnitude : highest;
  }
  if (__builtin_expect(highest > kInfinityBits, 0)) {
    for (int64_t i = 0; i < count; ++i) codes[i] = encode_expanded(g, values[i]);
    return;
  }
  for (int64_t i = 0; i < kStateGroup; i += kEstimated) encode_numbers(g, e, values + i, to + i);
  if (count < kStateGroup) __builtin_memcpy(codes, to, static_cast<size_t>(count));
}

/* Codes of EXPANDED_128 to values by a table of powers.
 *
 * An estimate with a bound, as above: (code * scale_inv)^(1/k) * c = code^(1/k) *
 * (scale_inv^(1/k) * c), a table times a factor of the group, in fp64. log2 and exp2 have
 * relative errors below 2^-50. Exponents of finite results are at most 1,024, so each is off by
 * at most 2^-40, and its power by 2^-40 ln 2: the definition's value by less than 2^-40, the
 * product of two powers by less than 2^-39. kDecodeSlack is 2^-37. */

constexpr double kDecodeSlack = 0x1p-37;

constexpr int kDoubles = kLanes / 2;
typedef double Doubles __attribute__((vector_size(kDoubles * sizeof(double))));
typedef float Floats __attribute__((vector_size(kDoubles * sizeof(float))));
typedef int32_t IntLanes __attribute__((vector_size(kDoubles * sizeof(int32_t))));
typedef float FloatsInMemory
    __attribute__((vector_size(kDoubles * sizeof(float)), aligned(sizeof(float)), may_alias));

/* The powers of kDoubles codes. */
inline Doubles powers_of(const double *powers, const uint8_t *codes) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return Doubles{powers[codes[0]], powers[codes[1]], powers[codes[2]], powers[codes[3]]};
#else
  Doubles found;
  for (int i = 0; i < kDoubles; ++i) found[i] = powers[codes[i]];
  return found;
#endif
}

/* decode_expanded by a table of powers and the group's factor. */
inline void decode_estimated(const ExpandedGroup &g, const double *powers, double factor,
                             const uint8_t *codes, int64_t count, float *values) {
  const double low = factor * (1.0 - kDecodeSlack), high = factor * (1.0 + kDecodeSlack);
  IntLanes differ = {};
  int64_t i = 0;
  for (; i + kDoubles <= count; i += kDoubles) {
    const Doubles power = powers_of(powers, codes + i);
    const Floats smaller = __builtin_convertvector(power * low, Floats);
    const Floats larger = __builtin_convertvector(power * high, Floats);
    differ |= reinterpret_cast<IntLanes>(smaller) ^ reinterpret_cast<IntLanes>(larger);
    *reinterpret_cast<FloatsInMemory *>(values + i) = larger;
  }
  int32_t any = 0;
  for (int k = 0; k < kDoubles; ++k) any |= differ[k];
  for (; i < count; ++i) values[i] = decode_expanded(g, codes[i]);
  if (__builtin_expect(any == 0, 1)) return;
  for (i = 0; i < count; ++i) {
    const float smaller = static_cast<float>(powers[codes[i]] * low);
    if (float_bits(smaller) != float_bits(values[i])) values[i] = decode_expanded(g, codes[i]);
  }
}

/* Blocks of optimizer states in vectors.
 *
 * The estimates above do for most groups of dynamic range expansion. The others take a
 * logarithm and a power in fp64 for every element. Here they are the operations of
 * kernels/format/power.h in the same order, for as many elements as a vector holds; what that
 * file does by branches and by integers of 64 bits is done by selection and by exact
 * conversions, since older instruction sets lack the rest. Groups whose numbers are not those
 * of a state that was ever written go through the functions of kernels/format. */

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
