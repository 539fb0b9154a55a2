/* What adam_step refuses.
 *
 * Everything is checked before the first item changes, so a refused call leaves all states alone.
 */
#include "kernels/check/verbs.h"

#include "kernels/check/calls.h"

#include "kernels/check/scales.h"

namespace octavo {
namespace {

void check_target(Check *check, const octavo_tensor &t, const float *scale_inv, const char *name,
                  const octavo_adam_item &item) {
  check->tensor(&t, name, scale_inv == nullptr ? Dtypes::kAny : Dtypes::kQuantized);
  check->accumulators({{scale_inv, name}});
  check->same_shape(&t, name, &item.weight, "weight");
}

/* Blocks run over memory, so with them all tensors of the item are dense. */
void check_blocks(Check *check, const octavo_adam_item &item) {
  if (item.exp_avg_scale_inv == nullptr && item.exp_avg_sq_scale_inv == nullptr) return;
  if (item.exp_avg_scale_inv != nullptr) check_state_codes(check, &item.exp_avg, "exp_avg");
  if (item.exp_avg_sq_scale_inv != nullptr) {
    check_state_codes(check, &item.exp_avg_sq, "exp_avg_sq");
  }
  check_state_dense(check, &item.weight, "weight");
  check_state_dense(check, &item.gradient, "gradient");
  check_state_dense(check, &item.exp_avg, "exp_avg");
  check_state_dense(check, &item.exp_avg_sq, "exp_avg_sq");
}

void check_item(Check *check, const octavo_adam_item &item) {
  check_target(check, item.weight, item.weight_scale_inv, "weight", item);
  check_target(check, item.exp_avg, item.exp_avg_scale_inv, "exp_avg", item);
  check_target(check, item.exp_avg_sq, item.exp_avg_sq_scale_inv, "exp_avg_sq", item);
  check->tensor(&item.gradient, "gradient", Dtypes::kAny);
  check->accumulators({{item.gradient_scale_inv, "gradient_scale_inv"}});
  check->same_shape(&item.gradient, "gradient", &item.weight, "weight");
  check->not_null(item.step, "step");
  check->not_null(item.hyper, "hyper");
}

void check_modes(Check *check, const octavo_adam_step &c) {
  if (c.decay_mode > OCTAVO_DECAY_L2 && c.decay_mode != OCTAVO_DECAY_L2_MSAMP04) {
    check->fail(OCTAVO_UNSUPPORTED,
                "decay_mode = %u; expected %d (decoupled), %d (L2) or %u (L2 of MS-AMP 0.4.0)",
                c.decay_mode, OCTAVO_DECAY_DECOUPLED, OCTAVO_DECAY_L2, OCTAVO_DECAY_L2_MSAMP04);
  }
  if (c.state_granularity != OCTAVO_PER_TENSOR && !is_state_granularity(c.state_granularity)) {
    check->fail(OCTAVO_UNSUPPORTED,
                "state_granularity = %u; expected %d (per tensor), %d (flat 256) or %u (expanded "
                "128)",
                c.state_granularity, OCTAVO_PER_TENSOR, OCTAVO_FLAT_256, OCTAVO_EXPANDED_128);
  }
  if ((c.flags & ~flags_of(OCTAVO_KIND_ADAM_STEP)) != 0) {
    check->fail(OCTAVO_UNSUPPORTED, "flags = 0x%x; expected 0 or 0x%x (keep positive)", c.flags,
                OCTAVO_ADAM_KEEP_POSITIVE);
  }
  if (c.decay_mode == OCTAVO_DECAY_L2_MSAMP04 && c.state_granularity != OCTAVO_PER_TENSOR) {
    check->fail(
        OCTAVO_UNSUPPORTED,
        "decay_mode = %u (L2 of MS-AMP 0.4.0) with state_granularity = %u; expected %d (per "
        "tensor), MS-AMP has no other states",
        OCTAVO_DECAY_L2_MSAMP04, c.state_granularity, OCTAVO_PER_TENSOR);
  }
}

}  // namespace

octavo_status check_adam_step(const Caller &caller, const octavo_adam_step *c) {
  Check check(caller, "adam_step");
  if (!check.call(c)) return check.status();
  if (c->count > 0) check.not_null(c->items, "items");
  check_modes(&check, *c);
  bool is_scaled = false;
  for (uint64_t i = 0; i < c->count && check.ok(); ++i) {
    const octavo_adam_item &item = c->items[i];
    check_item(&check, item);
    if (c->state_granularity != OCTAVO_PER_TENSOR) check_blocks(&check, item);
    is_scaled = is_scaled || has_tensor_scale(*c, item);
  }
  if (is_scaled) check.rule(c->rule);
  return check.status();
}

octavo_status check_adam_rounded(const Caller &caller, const octavo_adam_rounded *c) {
  Check check(caller, "adam_rounded");
  if (!check.call(c)) return check.status();
  check.not_null(c->step, "step");
  check.reserved(c->reserved, "the call struct");
  const struct {
    uint32_t rounding;
    const char *name;
    bool may_shrink;
  } tensors[] = {{c->weight_rounding, "weight_rounding", false},
                 {c->exp_avg_rounding, "exp_avg_rounding", true},
                 {c->exp_avg_sq_rounding, "exp_avg_sq_rounding", false}};
  bool is_stochastic = false;
  for (const auto &t : tensors) {
    is_stochastic = is_stochastic || t.rounding == OCTAVO_ROUND_STOCHASTIC;
    if (t.rounding == OCTAVO_ROUND_NEAREST_EVEN || t.rounding == OCTAVO_ROUND_STOCHASTIC ||
        (t.may_shrink && t.rounding == OCTAVO_ROUND_SHRINKING))
      continue;
    check.fail(OCTAVO_UNSUPPORTED, "%s = %u; expected %d (nearest even)%s or %u (stochastic)",
               t.name, t.rounding, OCTAVO_ROUND_NEAREST_EVEN,
               t.may_shrink ? ", 32768 (shrinking)" : "", OCTAVO_ROUND_STOCHASTIC);
  }
  if (check.ok() && is_stochastic && c->step->count > 0) check.not_null(c->keys, "keys");
  return check.ok() ? check_adam_step(caller, c->step) : check.status();
}

octavo_status check_adam_one_pass(const Caller &caller, const octavo_adam_one_pass *c) {
  Check check(caller, "adam_one_pass");
  if (!check.call(c)) return check.status();
  check.not_null(c->rounded, "rounded");
  if (!check.ok()) return check.status();
  const octavo_status status = check_adam_rounded(caller, c->rounded);
  if (status != OCTAVO_OK) return status;
  const octavo_adam_step &step = *c->rounded->step;
  for (uint64_t i = 0; i < step.count && check.ok(); ++i) {
    if (!has_tensor_scale(step, step.items[i])) continue;
    check.not_null(c->amax, "amax");
    if (!check.ok()) break;
    check.not_null(c->amax[i], "amax[i]");
    check.accumulators({{c->amax[i], "amax[i]"}});
  }
  return check.status();
}

}  // namespace octavo
