/* compute_amax, scale_from_amax, prescale_update, count and gradient_scale: all between values and
 * factors.
 *
 * Pointers into a pool are aligned to one float only.
 */
#include <cmath>

#include "kernels/cpu/cast_rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/bits.h"
#include "kernels/format/scale_rules.h"

namespace octavo {

octavo_status compute_amax(const Context &context, const octavo_compute_amax &c) {
  SharedStats shared;
  octavo_status status = measure_all(context, {*c.in, scale_value(c.in_scale_inv)}, &shared);
  if (status == OCTAVO_OK) shared.publish(c.amax, c.nonfinite);
  return status;
}

octavo_status scale_from_amax(const Context &, const octavo_scale_from_amax &c) {
  for (uint64_t i = 0; i < c.n; ++i) {
    const float amax = c.amax[i] / c.divide_by;
    const float kept = c.kept == nullptr ? 1.0f : c.kept[i];
    const float scale = scale_by_rule(c.rule, amax, kept, c.format_max, 0);
    if (c.scale != nullptr) c.scale[i] = scale;
    if (c.scale_inv != nullptr) c.scale_inv[i] = 1.0f / scale;
  }
  return OCTAVO_OK;
}

octavo_status prescale_update(const Context &, const octavo_prescale_update &c) {
  if (*c.added != 0.0f) {
    /* Both comparisons are written so that NaN falls on the careful side. */
    const double limit = static_cast<double>(c.threshold) * static_cast<double>(*c.added);
    const bool halves = !(static_cast<double>(*c.saturated) <= limit);
    const float next = halves ? *c.prescale * 0.5f : *c.prescale * c.growth;
    const float raised = next >= c.low ? next : c.low;
    *c.prescale = raised <= c.high ? raised : c.high;
  }
  *c.saturated = 0.0f;
  *c.added = 0.0f;
  return OCTAVO_OK;
}

octavo_status count(const Context &, const octavo_count &c) {
  if (c.skip != nullptr && *c.skip != 0.0f) return OCTAVO_OK;
  *c.count = next_count(*c.count);
  return OCTAVO_OK;
}

octavo_status gradient_scale(const Context &, const octavo_gradient_scale &c) {
  double squares = 0.0;
  for (uint64_t i = 0; i < c.sum_count; ++i) squares += static_cast<double>(c.sum[i]);
  const float norm = static_cast<float>(static_cast<double>(c.factor) * std::sqrt(squares));
  const bool skips = !is_finite(norm) || (c.nonfinite != nullptr && *c.nonfinite != 0.0f);
  float scale = c.factor;
  if (c.max_norm > 0 && !skips) {
    const float clip = c.max_norm / (norm + 1e-6f);
    if (clip < 1.0f) scale = c.factor * clip;
  }
  if (c.norm != nullptr) *c.norm = norm;
  if (c.skip != nullptr) *c.skip = skips ? 1.0f : 0.0f;
  for (uint64_t i = 0; i < c.count; ++i) *c.grad_scale[i] = scale;
  return OCTAVO_OK;
}

}  // namespace octavo
