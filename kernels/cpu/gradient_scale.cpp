/* gradient_scale: from the sum of squares of all gradients to the factor of the optimizer step. */
#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/bits.h"

namespace octavo {
namespace {

octavo_status check_call(const Context &context, const octavo_gradient_scale *c) {
  Check check(context, "gradient_scale");
  if (!check.call(c)) return check.status();
  if (c->sum_count > 0) check.not_null(c->sum, "sum");
  check.accumulator(c->sum, "sum");
  check.accumulator(c->nonfinite, "nonfinite");
  check.accumulator(c->norm, "norm");
  check.accumulator(c->skip, "skip");
  if (check.ok() && c->count > 0) check.not_null(c->grad_scale, "grad_scale");
  for (uint64_t i = 0; i < c->count && check.ok(); ++i) {
    check.not_null(c->grad_scale[i], "grad_scale[i]");
    check.accumulator(c->grad_scale[i], "grad_scale[i]");
  }
  if (check.ok() && !(c->factor > 0 && is_finite(c->factor))) {
    check.fail(OCTAVO_INVALID, "factor = %g; expected a finite value above 0",
               static_cast<double>(c->factor));
  }
  if (check.ok() && !(c->max_norm >= 0 && is_finite(c->max_norm))) {
    check.fail(OCTAVO_INVALID, "max_norm = %g; expected a finite value, 0 for no clipping",
               static_cast<double>(c->max_norm));
  }
  return check.status();
}

}  // namespace

octavo_status gradient_scale(void *ctx, const octavo_gradient_scale *c) {
  const octavo_status status = check_call(context_of(ctx), c);
  if (status != OCTAVO_OK) return status;
  double squares = 0.0;
  for (uint64_t i = 0; i < c->sum_count; ++i) squares += static_cast<double>(c->sum[i]);
  const float norm = static_cast<float>(static_cast<double>(c->factor) * std::sqrt(squares));
  const bool skips = !is_finite(norm) || (c->nonfinite != nullptr && *c->nonfinite != 0.0f);
  float scale = c->factor;
  if (c->max_norm > 0 && !skips) {
    const float clip = c->max_norm / (norm + 1e-6f);
    if (clip < 1.0f) scale = c->factor * clip;
  }
  if (c->norm != nullptr) *c->norm = norm;
  if (c->skip != nullptr) *c->skip = skips ? 1.0f : 0.0f;
  for (uint64_t i = 0; i < c->count; ++i) *c->grad_scale[i] = scale;
  return OCTAVO_OK;
}

}  // namespace octavo
