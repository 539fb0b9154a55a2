/* compute_amax, scale_from_amax and prescale_update: all between values and scales.
 *
 * Pointers into a pool are aligned to one float only.
 */
#include "kernels/check/verbs.h"
#include "kernels/cpu/cast_rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/scale_rules.h"

namespace octavo {

octavo_status compute_amax(void *ctx, const octavo_compute_amax *c) {
  const Context &context = context_of(ctx);
  octavo_status status = check_compute_amax(context.caller(), c);
  if (status != OCTAVO_OK) return status;

  SharedStats shared;
  status = measure_all(context, {*c->in, scale_value(c->in_scale_inv)}, &shared);
  if (status == OCTAVO_OK) shared.publish(c->amax, c->nonfinite);
  return status;
}

octavo_status scale_from_amax(void *ctx, const octavo_scale_from_amax *c) {
  const octavo_status status = check_scale_from_amax(context_of(ctx).caller(), c);
  if (status != OCTAVO_OK) return status;

  for (uint64_t i = 0; i < c->n; ++i) {
    const float amax = c->amax[i] / c->divide_by;
    const float kept = c->kept == nullptr ? 1.0f : c->kept[i];
    const float scale = scale_by_rule(c->rule, amax, kept, c->format_max, 0);
    if (c->scale != nullptr) c->scale[i] = scale;
    if (c->scale_inv != nullptr) c->scale_inv[i] = 1.0f / scale;
  }
  return OCTAVO_OK;
}

octavo_status prescale_update(void *ctx, const octavo_prescale_update *c) {
  const octavo_status status = check_prescale_update(context_of(ctx).caller(), c);
  if (status != OCTAVO_OK) return status;

  if (*c->added != 0.0f) {
    /* Both comparisons are written so that NaN falls on the careful side. */
    const double limit = static_cast<double>(c->threshold) * static_cast<double>(*c->added);
    const bool halves = !(static_cast<double>(*c->saturated) <= limit);
    const float next = halves ? *c->prescale * 0.5f : *c->prescale * c->growth;
    const float raised = next >= c->low ? next : c->low;
    *c->prescale = raised <= c->high ? raised : c->high;
  }
  *c->saturated = 0.0f;
  *c->added = 0.0f;
  return OCTAVO_OK;
}

}  // namespace octavo
