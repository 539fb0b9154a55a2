/* gradient_scale: from the sum of squares of all gradients to the factor of the optimizer step. */
#include <cmath>

#include "kernels/check/verbs.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/bits.h"

namespace octavo {

octavo_status gradient_scale(void *ctx, const octavo_gradient_scale *c) {
  const octavo_status status = check_gradient_scale(context_of(ctx).caller(), c);
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
