/* kernels/format/scale_rules.h: the rules that derive a scale from an amax, one function each.
 *
 * m is the maximum of the format. A scale is the multiplier before the cast, unless the name
 * contains "inv". The rules differ in the last bit on ordinary data, and widely for 0, infinity,
 * NaN and tiny values: never replace one by another because they look alike. Powers of two are
 * computed from exponent bits; a rounded logarithm is wrong just below a power of two.
 */
#pragma once

#include "kernels/format/e8m0.h"
#include "octavo/draft/msamp.h"

namespace octavo {

OCTAVO_HOST_DEVICE static inline float limit_infinity(float scale, float largest) {
  return is_infinite(scale) ? largest : scale;
}

/* TransformerEngine delayed scaling, fused kernel (common/recipe/delayed_scaling.cu): a single
 * division after the margin is applied. Returns old_scale unless amax is finite and positive. */
OCTAVO_HOST_DEVICE static inline float scale_te_delayed_fused(float amax, float old_scale, float m,
                                                              int32_t margin) {
  if (!is_usable_amax(amax)) return old_scale;
  return limit_infinity(m * power_of_two(-margin) / amax, kFloatMax);
}

/* TransformerEngine delayed scaling, Python path (pytorch/quantization.py): number / tensor is a
 * reciprocal followed by a multiplication. The margin is applied last, so a tiny amax overflows
 * before it. */
OCTAVO_HOST_DEVICE static inline float scale_te_delayed_unfused(float amax, float old_scale,
                                                                float m, int32_t margin) {
  if (!is_usable_amax(amax)) return old_scale;
  const float reciprocal = 1.0f / amax;
  return limit_infinity(reciprocal * m / power_of_two(margin), kFloatMax);
}

/* TransformerEngine current and block scaling (common/recipe/recipe_common.cuh). `largest` replaces
 * an infinite scale: FLT_MAX for current scaling, the largest value of the input's dtype for block
 * scaling. With pow2, the mantissa is cleared after that. */
OCTAVO_HOST_DEVICE static inline float scale_te_current(float amax, float m, float eps, bool pow2,
                                                        float largest) {
  if (amax < eps) amax = eps;
  if (!is_usable_amax(amax)) return 1.0f;
  const float scale = limit_infinity(m / amax, largest);
  return pow2 ? floor_to_power_of_two(scale) : scale;
}

OCTAVO_HOST_DEVICE static inline float scale_te_block(float amax, float m, float eps, bool pow2,
                                                      float input_dtype_max) {
  return scale_te_current(amax, m, eps, pow2, input_dtype_max);
}

/* TransformerEngine MX (common/util/ptx.cuh): the E8M0 code of scale_inv, rounded up so that no
 * element of the block saturates. */
OCTAVO_HOST_DEVICE static inline uint8_t scale_inv_te_mx(float amax, float m) {
  return encode_e8m0_up(amax * (1.0f / m));
}

/* OCP Microscaling Formats 1.0: shared exponent = floor(log2 amax) - emax (8 for E4M3, 15 for
 * E5M2), with a lower bound; emax >= 0. The largest elements of a block may saturate. */
OCTAVO_HOST_DEVICE static inline uint8_t scale_inv_ocp_mx(float amax, int32_t emax) {
  const int32_t code = encode_e8m0_down(amax);
  if (code == 0xFF) return 0xFF;
  return static_cast<uint8_t>(code > emax ? code - emax : 0);
}

/* floor(log2(m / amax)), exact, for an amax so small that the quotient overflows. */
OCTAVO_HOST_DEVICE static inline int32_t floor_log2_of_overflow(float m, float amax) {
  const float raised = amax * 0x1p64f;
  const int32_t near = (float_bits(1.0f / raised * m) >> 23) - 127;
  /* The rounded quotient may be on the wrong side of a power of two; these products are exact. */
  if (bits_float((near + 127) << 23) * raised > m) return near + 63;
  return bits_float((near + 128) << 23) * raised <= m ? near + 65 : near + 64;
}

/* MS-AMP's powers of two without its quirks: 2 to the exponent of fl(fl(1 / amax) * m) minus the
 * margin. Returns old_scale if amax is 0, infinite or NaN. Where that quotient overflows, the
 * exponent is the exact one, so that a margin still counts from it. The exponent is clamped to
 * -126 .. 127, so that the scale and its inverse are finite and nonzero. */
OCTAVO_HOST_DEVICE static inline float scale_msamp(float amax, float old_scale, float m,
                                                   int32_t margin) {
  if (!is_usable_amax(amax)) return old_scale;
  const float quotient = 1.0f / amax * m;
  const int64_t top = is_finite(quotient) ? floor_log2(quotient) : floor_log2_of_overflow(m, amax);
  const int64_t exponent = top - margin;
  if (exponent > 127) return power_of_two(127);
  return power_of_two(exponent < -126 ? -126 : static_cast<int32_t>(exponent));
}

/* MS-AMP 0.4.0 (msamp/common/tensor/meta.py), with its quirks, which a parity profile needs: an
 * infinite amax gives 1 / old_scale, and a quotient that overflows gives an infinite scale. */
OCTAVO_HOST_DEVICE static inline float scale_msamp04(float amax, float old_scale, float m,
                                                     int32_t margin) {
  if (is_infinite(amax)) return 1.0f / old_scale;
  if (!is_usable_amax(amax)) return old_scale;
  const float quotient = 1.0f / amax * m;
  if (!is_finite(quotient)) return quotient;
  const int64_t exponent = static_cast<int64_t>(floor_log2(quotient)) - margin;
  if (exponent > 127) return power_of_two(128);
  if (exponent < -127) return 0.0f; /* 1 / 2^128, where 2^128 is infinite */
  const int32_t power = static_cast<int32_t>(exponent);
  return power < 0 ? 1.0f / power_of_two(-power) : power_of_two(power);
}

/* torchao float8 (torchao/float8/float8_utils.py): the quotient is computed in fp64 and rounded
 * once. Infinity and NaN are not handled. */
OCTAVO_HOST_DEVICE static inline float scale_torchao(float amax, float m, bool pow2) {
  const double clamped = static_cast<double>(amax) < 1e-12 ? 1e-12 : static_cast<double>(amax);
  const float scale = static_cast<float>(static_cast<double>(m) / clamped);
  return pow2 ? floor_to_power_of_two(scale) : scale;
}

/* DeepGEMM (deep_gemm/utils/math.py): scale_inv for E4M3. The power of two is rounded up by integer
 * arithmetic on the bits, so infinity and NaN become 2^127 as in DeepGEMM. */
OCTAVO_HOST_DEVICE static inline float scale_inv_deepgemm(float amax, bool pow2) {
  const float clamped = amax < 1e-4f ? 1e-4f : amax;
  const float scale_inv = clamped / 448.0f;
  if (!pow2) return scale_inv;
  const int32_t bits = float_bits(scale_inv) & kMagnitudeMask;
  const int32_t exponent = (bits >> 23) + ((bits & kMantissaMask) != 0 ? 1 : 0);
  const int32_t limited = exponent < 1 ? 1 : exponent;
  return bits_float((limited > 254 ? 254 : limited) << 23);
}

/* The scale of one block. */
struct BlockScale {
  float scale;     /* multiplies before the cast */
  float scale_inv; /* multiplies codes */
  uint8_t code;    /* scale_inv as E8M0; MX rules only, else 0 */
};

/* Rules for blocks of 32, whose scales are powers of two in E8M0. */
OCTAVO_HOST_DEVICE static inline bool is_mx_rule(uint32_t rule) {
  return rule == OCTAVO_RULE_MX_UP || rule == OCTAVO_RULE_MX_FLOOR;
}

/* Rules for blocks of 128, whose scales are f32. */
OCTAVO_HOST_DEVICE static inline bool is_block_rule(uint32_t rule) {
  return rule == OCTAVO_RULE_QUOTIENT || rule == OCTAVO_RULE_POW2 || rule == OCTAVO_RULE_DEEPGEMM ||
         rule == OCTAVO_RULE_DEEPGEMM_POW2;
}

/* The block rules of octavo/rules.h; `rule` is one of the two groups above. eps is a lower bound on
 * amax. `largest` is the largest value of the input's dtype, of codes FLT_MAX, see scale_te_block.
 *
 * m >= 1. For m = 448 or 57344 and an amax that is not NaN, scale and scale_inv are finite and
 * nonzero, with two exceptions for an infinite amax, as in the originals: MX_FLOOR gives NaN, and
 * DEEPGEMM gives a scale of 0. */
OCTAVO_HOST_DEVICE static inline BlockScale block_scale(uint32_t rule, float amax, float m,
                                                        float eps, float largest) {
  if (amax < eps) amax = eps;
  if (is_mx_rule(rule)) {
    const uint8_t code = rule == OCTAVO_RULE_MX_UP ? scale_inv_te_mx(amax, m)
                                                   : scale_inv_ocp_mx(amax, floor_log2(m));
    return {e8m0_multiplier(code), decode_e8m0(code), code};
  }
  if (rule == OCTAVO_RULE_DEEPGEMM || rule == OCTAVO_RULE_DEEPGEMM_POW2) {
    const float scale_inv = scale_inv_deepgemm(amax, rule == OCTAVO_RULE_DEEPGEMM_POW2);
    return {1.0f / scale_inv, scale_inv, 0};
  }
  const float scale = scale_te_block(amax, m, eps, rule == OCTAVO_RULE_POW2, largest);
  return {scale, 1.0f / scale, 0};
}

/* Whether scale_by_rule knows `rule`. It does not know GIVEN, which has no amax. */
OCTAVO_HOST_DEVICE static inline bool is_scale_rule(uint32_t rule) {
  return rule == OCTAVO_RULE_QUOTIENT || rule == OCTAVO_RULE_POW2 ||
         rule == OCTAVO_RULE_RECIPROCAL || rule == OCTAVO_RULE_MSAMP || rule == OCTAVO_RULE_MSAMP04;
}

/* The per-tensor rules of octavo/rules.h and octavo/draft/msamp.h. Returns `kept` if amax is 0,
 * infinite or NaN, except that MSAMP04 returns 1 / kept for infinity. */
OCTAVO_HOST_DEVICE static inline float scale_by_rule(uint32_t rule, float amax, float kept, float m,
                                                     int32_t margin) {
  if (rule == OCTAVO_RULE_MSAMP04) return scale_msamp04(amax, kept, m, margin);
  if (rule == OCTAVO_RULE_MSAMP) return scale_msamp(amax, kept, m, margin);
  if (!is_usable_amax(amax)) return kept;
  if (rule == OCTAVO_RULE_RECIPROCAL) return scale_te_delayed_unfused(amax, kept, m, margin);
  const float scale = scale_te_delayed_fused(amax, kept, m, margin);
  return rule == OCTAVO_RULE_POW2 ? floor_to_power_of_two(scale) : scale;
}

}  // namespace octavo
