/* What the verbs between values and factors refuse: compute_amax, scale_from_amax,
 * delayed_scale_update, gradient_scale and drafts.
 *
 * Pointers into a pool are aligned to one float only.
 */
#include "kernels/check/calls.h"
#include "kernels/check/verbs.h"

#include "kernels/format/bits.h"

namespace octavo {
namespace {

/* More could make 2^margin infinite or a scale 0. */
constexpr int32_t kMostMargin = 30;
constexpr uint64_t kMostFactors = uint64_t{1} << 40;

void check_count(Check &check, uint64_t n) {
  if (n > kMostFactors)
    check.fail(OCTAVO_INVALID, "n = %llu; expected at most 2^40", (unsigned long long)n);
}

}  // namespace

octavo_status check_compute_amax(const Caller &caller, const octavo_compute_amax *c) {
  Check check(caller, "compute_amax");
  if (!check.call(c)) return check.status();
  check.tensor(c->in, "in", Dtypes::kAny);
  check.scale(c->in_scale_inv, "in_scale_inv", true);
  check.not_null(c->amax, "amax");
  check.accumulators({{c->amax, "amax"}, {c->nonfinite, "nonfinite"}});
  return check.status();
}

octavo_status check_scale_from_amax(const Caller &caller, const octavo_scale_from_amax *c) {
  Check check(caller, "scale_from_amax");
  if (!check.call(c)) return check.status();
  check.rule(c->rule);
  check.format_max(c->format_max);
  check.number(is_above_0(c->divide_by), "divide_by", c->divide_by,
               "a positive number, 1 for none");
  check.reserved(c->reserved, "the call struct");
  check_count(check, c->n);
  if (c->n > 0) check.not_null(c->amax, "amax");
  check.accumulators(
      {{c->amax, "amax"}, {c->scale, "scale"}, {c->scale_inv, "scale_inv"}, {c->kept, "kept"}});
  return check.status();
}

octavo_status check_delayed_scale_update(const Caller &caller,
                                         const octavo_delayed_scale_update *c) {
  Check check(caller, "delayed_scale_update");
  if (!check.call(c)) return check.status();
  check.rule(c->rule);
  check.format_max(c->format_max);
  if (c->margin < 0 || c->margin > kMostMargin)
    check.fail(OCTAVO_INVALID, "margin = %d; expected 0 to %d, the scale is divided by 2^margin",
               c->margin, kMostMargin);
  check.flags(c->use_max, 1, "use_max");
  check.reserved(c->reserved, "the call struct");
  check.flags(c->history_flags, flags_of(OCTAVO_KIND_DELAYED_SCALE_UPDATE), "history_flags");
  check_count(check, c->n);
  if (c->length == 0) check.fail(OCTAVO_INVALID, "length = 0; expected at least 1 history row");
  if (c->n > 0) {
    check.not_null(c->amax, "amax");
    check.not_null(c->history, "history");
    check.not_null(c->scale, "scale");
  }
  check.accumulators(
      {{c->amax, "amax"}, {c->history, "history"}, {c->scale, "scale"}, {c->counter, "counter"}});
  return check.status();
}

octavo_status check_prescale_update(const Caller &caller, const octavo_prescale_update *c) {
  Check check(caller, "prescale_update");
  if (!check.call(c)) return check.status();
  check.not_null(c->prescale, "prescale");
  check.not_null(c->saturated, "saturated");
  check.not_null(c->added, "added");
  check.accumulators({{c->prescale, "prescale"}, {c->saturated, "saturated"}, {c->added, "added"}});
  check.number(is_0_or_above(c->threshold), "threshold", c->threshold, "a share, 0 or more");
  check.number(c->growth >= 1.0f && is_finite(c->growth), "growth", c->growth,
               "a factor of 1 or more");
  if (!is_above_0(c->low) || !(c->low <= c->high) || !is_finite(c->high)) {
    check.fail(OCTAVO_INVALID, "low = %g, high = %g; expected 0 < low <= high < infinity",
               static_cast<double>(c->low), static_cast<double>(c->high));
  }
  return check.status();
}

octavo_status check_count(const Caller &caller, const octavo_count *c) {
  Check check(caller, "count");
  if (!check.call(c)) return check.status();
  check.not_null(c->count, "count");
  check.accumulators({{c->count, "count"}});
  return check.status();
}

octavo_status check_gradient_scale(const Caller &caller, const octavo_gradient_scale *c) {
  Check check(caller, "gradient_scale");
  if (!check.call(c)) return check.status();
  if (c->sum_count > 0) check.not_null(c->sum, "sum");
  check.accumulators(
      {{c->sum, "sum"}, {c->nonfinite, "nonfinite"}, {c->norm, "norm"}, {c->skip, "skip"}});
  if (check.ok() && c->count > 0) check.not_null(c->grad_scale, "grad_scale");
  for (uint64_t i = 0; i < c->count && check.ok(); ++i) {
    check.not_null(c->grad_scale[i], "grad_scale[i]");
    check.accumulators({{c->grad_scale[i], "grad_scale[i]"}});
  }
  check.number(is_above_0(c->factor), "factor", c->factor, "a finite value above 0");
  check.number(is_0_or_above(c->max_norm), "max_norm", c->max_norm,
               "a finite value, 0 for no clipping");
  return check.status();
}

}  // namespace octavo
