/* kernels/format/one_pass.h: upper bounds of what an Adam step computes, see
 * octavo/draft/one_pass.h.
 *
 * A rounded operation of fp32 never reverses an order: a <= b gives fl(a) <= fl(b). So the
 * operations of adam_element, in their order, on the largest magnitudes bound every element's
 * result, without an allowance for rounding.
 */
#pragma once

#include "kernels/format/adam.h"

namespace octavo {

/* The largest magnitudes of an item before a step; the gradient's as adam_element takes it. */
struct AdamAmax {
  float weight;
  float exp_avg;
  float exp_avg_sq;
  float gradient;
};

/* A limit of abs(exp_avg) / (sqrt(exp_avg_sq) / root_correction2 + eps).
 *
 * With m = (1 - b1) sum b1^k g_k and v = (1 - b2) sum b2^k g_k^2, Cauchy and Schwarz give
 *   abs(m) / sqrt(v) <= (1 - b1) / sqrt((1 - b2) (1 - b1^2 / b2))
 * for all gradients. The limit is twice that, so that it leaves exact Adam alone, and roundings of
 * the moments, too, as long as those keep the quotient within a factor of two. b1^2 / b2 is taken
 * for at most 1 - 2^-10: from 1 on exact Adam has no limit. */
OCTAVO_HOST_DEVICE static inline float adam_ratio_limit(const AdamFactors &f) {
  constexpr float kMost = 1.0f - 0x1p-10f;
  const float share = f.beta1 * f.beta1 / f.beta2;
  const float root = square_root(f.one_minus_beta2 * (1.0f - (share < kMost ? share : kMost)));
  return 2.0f * f.root_correction2 * (f.one_minus_beta1 / root);
}

/* Of the new values with the decay in them. A factor that is Inf or NaN gives such a bound. */
OCTAVO_HOST_DEVICE static inline AdamElement adam_bounds(const AdamFactors &f, const AdamAmax &a) {
  const float kept = a.weight * absolute(f.keep);
  const float g = f.l2 == 0.0f ? a.gradient : a.gradient + absolute(f.l2) * kept;
  const float change = absolute(f.step_size) * f.ratio_limit;
  return {kept + change, absolute(f.beta1) * a.exp_avg + absolute(f.one_minus_beta1) * g,
          absolute(f.beta2) * a.exp_avg_sq + absolute(f.one_minus_beta2) * (g * g)};
}

}  // namespace octavo
