/* kernels/cpu/level_expanded.h: EXPANDED_128 without a logarithm and a power in fp64 for every
 * element; included by level.cpp only.
 *
 * Encoding here, and decoding in level_expanded_decode.h, estimates the result of
 * kernels/format/block_state.h with a bound on the relative error. A result of that definition is
 * between the estimate times (1 - slack) and times (1 + slack), and rounding is monotonic: where
 * both round to the same number, the definition does. Elsewhere, which is one element in thousands,
 * the definition itself is computed.
 *
 * log2 of the quotient, y = k (log2 x - log2 c) - log2 scale_inv, in fp32 for k in [1/4,
 * 16]. k log2(x / c) is at most 8.31 and log2 scale_inv in [-8.81, 0]. x times the reciprocal of c
 * has two roundings, 1.8e-7 of the logarithm; the series for log2 m, abs(log2 m) <= 1/2, is off by
 * 4e-7 of it at most. Times k <= 16 that is 6.1e-6; the roundings of products and sums of numbers
 * up to 8.81 add 2.1e-6. So 2^y is off by 8.2e-6 ln 2 = 5.7e-6, the polynomial of exp2 adds 3e-7,
 * and the definition's own two roundings in fp32 add 1.2e-7. kEncodeSlack is 2^-16 = 15e-6.
 *
 * Values outside of the group's range give any y. The definition casts them to 448 from y = 8.81
 * on, and to 0 below y = -10. So y is kept in [-30, 30], where exp2's exponent stays in its field.
 * Where x times the reciprocal overflows or is subnormal, k >= 1/4 takes y out of [-22, 30].
 */
#pragma once

#include "kernels/cpu/level_cast.h"
#include "kernels/cpu/level_lanes.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo
