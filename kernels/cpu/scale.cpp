/* compute_amax, scale_from_amax and prescale_update: all between values and scales.
 *
 * Pointers into a pool are aligned to one float only.
 */
#include "kernels/cpu/cast_rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/scale_rules.h"

namespace octavo {

octavo_status compute_amax(void *ctx, const octavo_compute_amax *c) {
  const Context &context = context_of(ctx);
  Check check(context, "compute_amax");
  if (!check.call(c)) return check.status();
  check.tensor(c->in, "in", Dtypes::kAny);
  check.scale(c->in_scale_inv, "in_scale_inv", true);
  check.not_null(c->amax, "amax");
  check.accumulator(c->amax, "amax");
  check.accumulator(c->nonfinite, "nonfinite");
  if (!check.ok()) return check.status();

  SharedStats shared;
  const octavo_status status =
      measure_all(context, {*c->in, scale_value(c->in_scale_inv)}, &shared);
  if (status == OCTAVO_OK) shared.publish(c->amax, c->nonfinite);
  return status;
}

octavo_status scale_from_amax(void *ctx, const octavo_scale_from_amax *c) {
  const Context &context = context_of(ctx);
  Check check(context, "scale_from_amax");
  if (!check.call(c)) return check.status();
  check.rule(c->rule);
  check.format_max(c->format_max);
  if (!(c->divide_by > 0.0f) || !is_finite(c->divide_by)) {
    check.fail(OCTAVO_INVALID, "divide_by = %g; expected a positive number, 1 for none",
               static_cast<double>(c->divide_by));
  }
  if (c->n > 0) check.not_null(c->amax, "amax");
  check.accumulator(c->amax, "amax");
  check.accumulator(c->scale, "scale");
  check.accumulator(c->scale_inv, "scale_inv");
  check.accumulator(c->kept, "kept");
  if (!check.ok()) return check.status();

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
  const Context &context = context_of(ctx);
  Check check(context, "prescale_update");
  if (!check.call(c)) return check.status();
  check.not_null(c->prescale, "prescale");
  check.not_null(c->saturated, "saturated");
  check.not_null(c->added, "added");
  check.accumulator(c->prescale, "prescale");
  check.accumulator(c->saturated, "saturated");
  check.accumulator(c->added, "added");
  if (!(c->threshold >= 0.0f) || !is_finite(c->threshold)) {
    check.fail(OCTAVO_INVALID, "threshold = %g; expected a share, 0 or more",
               static_cast<double>(c->threshold));
  }
  if (!(c->growth >= 1.0f) || !is_finite(c->growth)) {
    check.fail(OCTAVO_INVALID, "growth = %g; expected a factor of 1 or more",
               static_cast<double>(c->growth));
  }
  if (!(c->low > 0.0f) || !(c->low <= c->high) || !is_finite(c->high)) {
    check.fail(OCTAVO_INVALID, "low = %g, high = %g; expected 0 < low <= high < infinity",
               static_cast<double>(c->low), static_cast<double>(c->high));
  }
  if (!check.ok()) return check.status();

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
