/* kernels/cpu/adam_bound.h: what a step may leave out without changing a bit.
 *
 * The largest new weight is found without computing all of them.
 * A new weight is kept - change, where kept = old * (1 - lr * decay) and
 *   change = step_size * exp_avg / (sqrt(exp_avg_sq) / c + eps), c = sqrt(1 - beta2^t).
 * Beside a weight of magnitude A that was seen already, an element can only matter if
 * abs(change) > d = A - abs(kept). Squared, and since (x + eps)^2 >= x^2 + eps^2, that needs
 *   (step_size * exp_avg)^2 > d * d * (exp_avg_sq / c^2 + eps^2):
 * no root and no division, which are what a step spends its time on. Elements that fail this test
 * are left out, all others are computed exactly, so the maximum is exact.
 *
 * Rounding: every quantity above carries a relative error below 2^-19, and kSlack allows 2^-13.3.
 * kFloor keeps underflow out: it is larger than what any of the products can lose, as long as A and
 * exp_avg_sq / c^2 stay below kBound. The last subtraction rounds monotonically, and A is a number
 * of the format, so a difference below A does not round beyond it.
 */
#pragma once

#include "kernels/cpu/update_loops.h"

namespace octavo {

constexpr float kChangeSlack = 1.0001f;
constexpr float kChangeFloor = 0x1p-90f;
constexpr float kChangeBound = 0x1p40f;

/* Whether the test above holds for these factors. */
inline bool can_bound_change(const AdamFactors &f) {
  return f.root_correction2 >= 0x1p-20f && f.root_correction2 <= 1.0f && f.eps >= 0.0f &&
         f.eps <= 0x1p20f;
}

/* Whether the peaks that the test led to can be relied upon: all values are numbers, none is so
 * large that a product could have overflowed. */
inline bool are_bounded(const AdamPeaks &peaks) {
  return peaks.bits[kWeight] < float_bits(kChangeBound) && peaks.bits[kExpAvg] < kInfinityBits &&
         peaks.bits[kExpAvgSq] < float_bits(kChangeBound);
}

/* A power of two that no product with a code or a hyperparameter makes inexact. */
inline bool is_moderate_power(float value) {
  return value >= 0x1p-60f && value <= 0x1p60f && (float_bits(value) & kMantissaMask) == 0;
}

/* 0 or a number whose products with such a power are exact. */
inline bool is_moderate(float value) {
  const float magnitude = absolute(value);
  return magnitude == 0.0f || (magnitude >= 0x1p-60f && magnitude <= 0x1p60f);
}

/* Whether the products of codes with their old scales may be left out: with a power of two s,
 * code * s is exact, so fl(beta * fl(code * s)) = fl(code * (beta * s)). */
inline bool can_fold_scales(const AdamPlan &plan) {
  for (int i = 0; i < kAdamTensors; ++i) {
    if (!is_moderate_power(plan.old_scale_inv[i])) return false;
  }
  const bool has_plain_gradient = OCTAVO_DTYPE_BITS(plan.gradient_dtype) > 8;
  if (has_plain_gradient && plan.gradient_factor != 1.0f) return false;
  return is_moderate_power(plan.gradient_factor) && is_moderate(plan.gradient_scale) &&
         is_moderate(plan.factors.beta1) && is_moderate(plan.factors.beta2) &&
         is_moderate(plan.factors.keep);
}

/* The plan with the old scales in its factors. */
inline AdamPlan with_folded_scales(AdamPlan plan) {
  plan.factors.keep *= plan.old_scale_inv[kWeight];
  plan.factors.beta1 *= plan.old_scale_inv[kExpAvg];
  plan.factors.beta2 *= plan.old_scale_inv[kExpAvgSq];
  plan.gradient_scale *= plan.gradient_factor;
  return plan;
}

}  // namespace octavo
