/* The values of an item of an adam_step: from its tensors, and back into their codes. */
#include "kernels/cpu/adam_item.h"

#include "kernels/cpu/adam_bound.h"
#include "kernels/cpu/state_blocks.h"

namespace octavo {
namespace {

Target make_target(const octavo_tensor &t, float *scale_inv, uint32_t granularity) {
  return {t, scale_inv, scale_inv == nullptr ? uint32_t{OCTAVO_PER_TENSOR} : granularity};
}

AdamPlan make_plan(const octavo_adam_step &c, const octavo_adam_item &item, int32_t step,
                   const Rounding &rounding, const Target *targets) {
  AdamPlan plan = {};
  bool has_tensor_states = false;
  for (int i = 0; i < kAdamTensors; ++i) {
    const Target &t = targets[i];
    plan.dtypes[i] = t.tensor.dtype;
    plan.is_scaled[i] = t.scale_inv != nullptr && t.granularity == OCTAVO_PER_TENSOR;
    plan.old_scale_inv[i] = plan.is_scaled[i] ? *t.scale_inv : 1.0f;
    plan.new_scale[i] = 1.0f;
    plan.rounding[i] =
        t.tensor.dtype == OCTAVO_F32 ? uint32_t{OCTAVO_ROUND_NEAREST_EVEN} : rounding.of[i];
    plan.keys[i] = random_key(rounding.key, step, static_cast<uint32_t>(i));
    if (i == kWeight) continue;
    has_tensor_states = has_tensor_states || plan.is_scaled[i];
    plan.stores_undecayed[i] = c.decay_mode == OCTAVO_DECAY_L2_MSAMP04 && t.scale_inv != nullptr;
  }
  const AdamBetas betas = has_tensor_states ? AdamBetas::kSingle : AdamBetas::kDecimal;
  plan.has_flat_moments = targets[kExpAvg].granularity == OCTAVO_FLAT_256 &&
                          targets[kExpAvgSq].granularity == OCTAVO_FLAT_256;
  plan.factors = adam_factors(item.hyper, step, c.decay_mode != OCTAVO_DECAY_DECOUPLED, betas);
  plan.gradient_dtype = item.gradient.dtype;
  plan.gradient_factor = item.gradient_scale_inv == nullptr ? 1.0f : *item.gradient_scale_inv;
  plan.gradient_scale = item.hyper[OCTAVO_HYPER_GRAD_SCALE];
  plan.keeps_positive = (c.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0;
  plan.folds_scales = can_fold_scales(plan);
  return plan;
}

bool is_stochastic(const AdamPlan &plan) {
  for (const uint32_t rounding : plan.rounding)
    if (rounding == OCTAVO_ROUND_STOCHASTIC) return true;
  return false;
}

void load_target(const Step &s, int which, int64_t row, int64_t col, int64_t count, float *values) {
  const Target &t = s.targets[which];
  if (t.granularity == OCTAVO_PER_TENSOR) {
    load_values(*s.context, t.tensor, row, col, count, s.plan.old_scale_inv[which], values);
  } else {
    load_state_blocks(*s.context, t.tensor, t.scale_inv, t.granularity, col, count, values);
  }
}

/* Codes that were just written, where they undo a decay from `old`. */
void shrink_target(const Step &s, int which, int64_t row, int64_t col, int64_t count,
                   const float *values, const float *old) {
  const Target &t = s.targets[which];
  float stored[kSegment];
  if (t.granularity != OCTAVO_PER_TENSOR) {
    load_state_blocks(*s.context, t.tensor, t.scale_inv, t.granularity, col, count, stored);
  } else {
    load_values(*s.context, t.tensor, row, col, count, 1.0f / s.plan.new_scale[which], stored);
  }
  s.context->level->updates.rounding.shrink(dtype_bytes(t.tensor.dtype), stored, values, old,
                                            decay_limit(s.plan.factors.beta1), count,
                                            element(t.tensor, row, col));
}

}  // namespace

Step make_step(const Context &context, const octavo_adam_step &c, const octavo_adam_item &item,
               int32_t step, const Rounding &rounding) {
  Step s = {&context,
            item.gradient,
            {make_target(item.weight, item.weight_scale_inv, OCTAVO_PER_TENSOR),
             make_target(item.exp_avg, item.exp_avg_scale_inv, c.state_granularity),
             make_target(item.exp_avg_sq, item.exp_avg_sq_scale_inv, c.state_granularity)},
            {},
            false,
            false};
  s.plan = make_plan(c, item, step, rounding, s.targets);
  bool is_dense = s.gradient.stride == s.gradient.cols;
  bool has_blocks = false;
  for (const Target &t : s.targets) {
    is_dense = is_dense && t.tensor.stride == t.tensor.cols;
    has_blocks = has_blocks || t.granularity != OCTAVO_PER_TENSOR;
  }
  /* Blocks run over rows, which are therefore dense; the stride of a single row says nothing. */
  if (is_dense || has_blocks) {
    s.gradient = as_row(s.gradient);
    for (Target &t : s.targets) t.tensor = as_row(t.tensor);
  }
  const FusedAdamLoops *fused = context.level->updates.fused;
  if (fused == nullptr || !can_bound_change(s.plan.factors)) return s;
  s.can_measure = fused->supports(s.plan);
  s.is_fused = s.can_measure && !is_stochastic(s.plan);
  return s;
}

void store_target(const Step &s, int which, int64_t row, int64_t col, int64_t count,
                  const float *values, const float *old_exp_avg) {
  const Target &t = s.targets[which];
  char *out = element(t.tensor, row, col);
  const uint32_t rounding = s.plan.rounding[which];
  const RandomKey *key = rounding == OCTAVO_ROUND_STOCHASTIC ? &s.plan.keys[which] : nullptr;
  const bool is_scaled = t.scale_inv != nullptr;
  const bool is_code = is_scaled || is_dtype(t.tensor.dtype, Dtypes::kFloat8);
  if (t.granularity != OCTAVO_PER_TENSOR) {
    store_state_blocks(*s.context, t.tensor, t.scale_inv, t.granularity, col, count, values, key);
  } else if (key != nullptr) {
    s.context->level->updates.rounding.cast(
        t.tensor.dtype, is_scaled, values, count, s.plan.new_scale[which], *key,
        static_cast<uint64_t>(row * s.gradient.cols + col), out);
  } else if (is_code) {
    s.context->level->cast(t.tensor.dtype, values, count, s.plan.new_scale[which], out);
  } else {
    s.context->level->store(t.tensor.dtype, values, count, out);
  }
  if (rounding == OCTAVO_ROUND_SHRINKING)
    shrink_target(s, which, row, col, count, values, old_exp_avg);
  if (which == kExpAvgSq && s.plan.keeps_positive && is_code)
    keep_positive(t.tensor.dtype, values, count, out);
}

void compute_segment(const Step &s, const AdamPlan &plan, int64_t row, int64_t col, int64_t count,
                     SegmentValues &values, float *old_exp_avg) {
  float gradient[kSegment];
  load_values(*s.context, s.gradient, row, col, count, plan.gradient_factor, gradient);
  for (int i = 0; i < kAdamTensors; ++i) load_target(s, i, row, col, count, values[i]);
  if (old_exp_avg != nullptr)
    std::memcpy(old_exp_avg, values[kExpAvg], static_cast<size_t>(count) * sizeof(float));
  s.context->level->updates.step(plan, gradient, count, values[kWeight], values[kExpAvg],
                                 values[kExpAvgSq]);
}

}  // namespace octavo
