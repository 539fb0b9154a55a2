/* kernels/cpu/level_expanded.h: EXPANDED_128 without a logarithm and a power in fp64 for every
 * element; included by level.cpp only.
 *
 * Both ways estimate the result of kernels/format/block_state.h with a bound on the relative error.
 * A result of that definition is between the estimate times (1 - slack) and times (1 + slack),
 * and rounding is monotonic: where both round to the same number, the definition does. Elsewhere,
 * which is one element in thousands, the definition itself is computed.
 *
 * Decoding. (code * scale_inv)^(1/k) * c = code^(1/k) * (scale_inv^(1/k) * c), a table times a
 * factor of the group, in fp64. log2 and exp2 have relative errors below 2^-50. Exponents of finite
 * results are at most 1,024, so each is off by at most 2^-40, and its power by 2^-40 ln 2: the
 * definition's value by less than 2^-40, the product of two powers by less than 2^-39. kDecodeSlack
 * is 2^-37.
 *
 * Encoding. log2 of the quotient, y = k (log2 x - log2 c) - log2 scale_inv, in fp32 for k in [1/4,
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

#include "kernels/cpu/expanded_powers.h"
#include "kernels/cpu/level_cast.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

constexpr double kDecodeSlack = 0x1p-37;
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
  for (int i = 0; i < kTogether; ++i) sum[i] = square[i] * 0.41219858f + 0.57707802f;
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) sum[i] = sum[i] * square[i] + 0.96179669f;
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) sum[i] = sum[i] * square[i] + 2.88539008f;
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) values[i] = exponent[i] + t[i] * sum[i];
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
    for (int i = 0; i < kTogether; ++i) sum[i] = sum[i] * x[i] + term;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    values[i] = reinterpret_cast<Estimates>(reinterpret_cast<EstimateWords>(sum[i]) +
                                            (reinterpret_cast<EstimateWords>(shifted[i]) << 23));
  }
}

/* The quotients that codes stand for, a little smaller and a little larger; values that take no
 * part stay. */
inline void estimate_quotients(const ExpandedEstimate &e, const float *values, float *low,
                               float *high) {
  const EstimatesInMemory *in = reinterpret_cast<const EstimatesInMemory *>(values);
  EstimatesInMemory *smaller = reinterpret_cast<EstimatesInMemory *>(low);
  EstimatesInMemory *larger = reinterpret_cast<EstimatesInMemory *>(high);
  Estimates quotients[kTogether];
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
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; ++i) {
    const EstimateBits bits = reinterpret_cast<EstimateBits>(Estimates(in[i]));
    const EstimateBits magnitude = bits & kMagnitudeMask, sign = bits & ~kMagnitudeMask;
    const EstimateBits is_usable = (magnitude > 0) & (magnitude < kInfinityBits);
    const Estimates below = quotients[i] * (1.0f - kEncodeSlack);
    const Estimates above = quotients[i] * (1.0f + kEncodeSlack);
    smaller[i] = reinterpret_cast<Estimates>(
        is_usable ? reinterpret_cast<EstimateBits>(below) | sign : bits);
    larger[i] = reinterpret_cast<Estimates>(is_usable ? reinterpret_cast<EstimateBits>(above) | sign
                                                      : bits);
  }
}

/* encode_expanded for a group that can be estimated; count is at most kStateGroup. */
inline void encode_estimated(const ExpandedGroup &g, const ExpandedEstimate &e, const float *values,
                             int64_t count, uint8_t *codes) {
  float padded[kStateGroup];
  if (count < kStateGroup) {
    for (int64_t i = 0; i < kStateGroup; ++i) padded[i] = i < count ? values[i] : 0.0f;
    values = padded;
  }
  float low[kStateGroup], high[kStateGroup];
  for (int64_t i = 0; i < kStateGroup; i += kTogether * kLanes)
    estimate_quotients(e, values + i, low + i, high + i);
  uint8_t low_codes[kStateGroup], high_codes[kStateGroup];
  cast_values(OCTAVO_E4M3FN, low, kStateGroup, 1.0f, low_codes);
  cast_values(OCTAVO_E4M3FN, high, kStateGroup, 1.0f, high_codes);
  uint8_t differ = 0;
  for (int64_t i = 0; i < kStateGroup; ++i) differ |= low_codes[i] ^ high_codes[i];
  if (__builtin_expect(differ != 0, 0)) {
    for (int64_t i = 0; i < count; ++i)
      if (low_codes[i] != high_codes[i]) low_codes[i] = encode_expanded(g, values[i]);
  }
  __builtin_memcpy(codes, low_codes, static_cast<size_t>(count));
}

/* decode_expanded by a table of powers and the group's factor. */
inline void decode_estimated(const ExpandedGroup &g, const double *powers, double factor,
                             const uint8_t *codes, int64_t n, float *values) {
  const double low = factor * (1.0 - kDecodeSlack), high = factor * (1.0 + kDecodeSlack);
  for (int64_t first = 0; first < n; first += kStateGroup) {
    const int64_t count = n - first < kStateGroup ? n - first : kStateGroup;
    const uint8_t *from = codes + first;
    float *to = values + first;
    double gathered[kStateGroup];
    for (int64_t i = 0; i < count; ++i) gathered[i] = powers[from[i] & 0x7F];
    float smaller[kStateGroup];
    int32_t differ = 0;
    for (int64_t i = 0; i < count; ++i) {
      smaller[i] = static_cast<float>(gathered[i] * low);
      const float larger = static_cast<float>(gathered[i] * high);
      differ |= float_bits(smaller[i]) ^ float_bits(larger);
      to[i] = bits_float(float_bits(larger) | (static_cast<int32_t>(from[i] & 0x80) << 24));
    }
    /* NaN has more than one pattern. */
    uint8_t nan = 0;
    for (int64_t i = 0; i < count; ++i) nan |= (from[i] & 0x7F) == 0x7F ? 1 : 0;
    if (__builtin_expect((differ | nan) != 0, 0)) {
      for (int64_t i = 0; i < count; ++i) {
        const bool is_sure = float_bits(smaller[i]) == (float_bits(to[i]) & kMagnitudeMask);
        if (!is_sure || (from[i] & 0x7F) == 0x7F) to[i] = decode_expanded(g, from[i]);
      }
    }
  }
}

}  // namespace
}  // namespace octavo
