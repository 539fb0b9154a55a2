/* adam_step, item by item: plain tensors, codes with one scale, states in blocks.
 *
 * A tensor's new scale needs the amax of all its new values, so there are two passes; the second
 * computes the values again from the old codes, which therefore change in it only. Nothing is kept
 * between them: what a pass computes takes more bytes than what it reads, and the first pass leaves
 * out most roots and divisions (adam_bound.h). The second pass goes backwards, so that it begins
 * with what the first one left in the caches. A block's scale needs its own values only and is
 * written with them, in the second pass.
 *
 * Layouts that a level knows go from codes to codes in registers, as long as all new values are
 * numbers; everything else goes through segments of fp32 on the stack, with the same bits.
 */
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/adam_bound.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

/* One tensor that the step changes. */
struct Target {
  octavo_tensor tensor;
  float *scale_inv;     /* null: plain; in blocks: all scales of the tensor */
  uint32_t granularity; /* OCTAVO_PER_TENSOR where plain */
};

struct Step {
  const Context *context;
  octavo_tensor gradient;
  Target targets[kAdamTensors];
  AdamPlan plan;
  bool is_fused; /* by loops of the level that know the layout */

  bool has_tensor_scale() const {
    return plan.is_scaled[kWeight] || plan.is_scaled[kExpAvg] || plan.is_scaled[kExpAvgSq];
  }
};

Target make_target(const octavo_tensor &t, float *scale_inv, uint32_t granularity) {
  return {t, scale_inv, scale_inv == nullptr ? uint32_t{OCTAVO_PER_TENSOR} : granularity};
}

AdamPlan make_plan(const octavo_adam_step &c, const octavo_adam_item &item, int32_t step,
                   const Target *targets) {
  AdamPlan plan = {};
  bool has_tensor_states = false;
  for (int i = 0; i < kAdamTensors; ++i) {
    const Target &t = targets[i];
    plan.dtypes[i] = t.tensor.dtype;
    plan.is_scaled[i] = t.scale_inv != nullptr && t.granularity == OCTAVO_PER_TENSOR;
    plan.old_scale_inv[i] = plan.is_scaled[i] ? *t.scale_inv : 1.0f;
    plan.new_scale[i] = 1.0f;
    if (i == kWeight) continue;
    has_tensor_states = has_tensor_states || plan.is_scaled[i];
    plan.stores_undecayed[i] = c.decay_mode == OCTAVO_DECAY_L2_MSAMP04 && t.scale_inv != nullptr;
  }
  const AdamBetas betas = has_tensor_states ? AdamBetas::kSingle : AdamBetas::kDecimal;
  plan.factors = adam_factors(item.hyper, step, c.decay_mode != OCTAVO_DECAY_DECOUPLED, betas);
  plan.gradient_dtype = item.gradient.dtype;
  plan.gradient_factor = item.gradient_scale_inv == nullptr ? 1.0f : *item.gradient_scale_inv;
  plan.gradient_scale = item.hyper[OCTAVO_HYPER_GRAD_SCALE];
  plan.keeps_positive = (c.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0;
  plan.folds_scales = can_fold_scales(plan);
  return plan;
}

Step make_step(const Context &context, const octavo_adam_step &c, const octavo_adam_item &item,
               int32_t step) {
  Step s = {&context,
            item.gradient,
            {make_target(item.weight, item.weight_scale_inv, OCTAVO_PER_TENSOR),
             make_target(item.exp_avg, item.exp_avg_scale_inv, c.state_granularity),
             make_target(item.exp_avg_sq, item.exp_avg_sq_scale_inv, c.state_granularity)},
            {},
            false};
  s.plan = make_plan(c, item, step, s.targets);
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
  s.is_fused = !has_blocks && fused != nullptr && fused->supports(s.plan) &&
               can_bound_change(s.plan.factors);
  return s;
}

void load_target(const Step &s, int which, int64_t row, int64_t col, int64_t count, float *values) {
  const Target &t = s.targets[which];
  if (t.granularity == OCTAVO_PER_TENSOR) {
    load_values(*s.context, t.tensor, row, col, count, s.plan.old_scale_inv[which], values);
  } else {
    load_state_blocks(*s.context, t.tensor, t.scale_inv, t.granularity, col, count, values);
  }
}

void store_target(const Step &s, int which, int64_t row, int64_t col, int64_t count,
                  const float *values) {
  const Target &t = s.targets[which];
  char *out = element(t.tensor, row, col);
  if (t.granularity != OCTAVO_PER_TENSOR) {
    store_state_blocks(*s.context, t.tensor, t.scale_inv, t.granularity, col, count, values);
  } else if (t.scale_inv != nullptr || is_dtype(t.tensor.dtype, Dtypes::kFloat8)) {
    s.context->level->cast(t.tensor.dtype, values, count, s.plan.new_scale[which], out);
  } else {
    return s.context->level->store(t.tensor.dtype, values, count, out);
  }
  if (which == kExpAvgSq && s.plan.keeps_positive) {
    keep_positive(t.tensor.dtype, values, count, out);
  }
}

using SegmentValues = float[kAdamTensors][kSegment];

/* The new values of one segment, from the old contents of all tensors. */
void compute_segment(const Step &s, const AdamPlan &plan, int64_t row, int64_t col, int64_t count,
                     SegmentValues &values) {
  float gradient[kSegment];
  load_values(*s.context, s.gradient, row, col, count, plan.gradient_factor, gradient);
  for (int i = 0; i < kAdamTensors; ++i) load_target(s, i, row, col, count, values[i]);
  s.context->level->updates.step(plan, gradient, count, values[kWeight], values[kExpAvg],
                                 values[kExpAvgSq]);
}

/* Calls body(span) for long runs of the segments [begin, end), the last ones first where asked. */
template <typename Body>
void for_spans(const Step &s, int64_t begin, int64_t end, bool goes_back, Body &&body) {
  constexpr int64_t kRun = 64; /* segments: long enough for what a call sets up */
  const int64_t cols = s.gradient.cols;
  const int64_t per_row = divide_up(cols, kSegment);
  const auto call = [&](int64_t first, int64_t last) {
    const int64_t row = first / per_row;
    const int64_t col = first % per_row * kSegment;
    const int64_t left = cols - col;
    const int64_t whole = (last - first) * kSegment;
    AdamSpan span = {element(s.gradient, row, col), {}, whole < left ? whole : left};
    for (int i = 0; i < kAdamTensors; ++i) {
      span.tensors[i] = element(s.targets[i].tensor, row, col);
    }
    body(span);
  };
  if (goes_back) {
    for (int64_t last = end; last > begin;) {
      const int64_t row_begin = (last - 1) / per_row * per_row;
      int64_t first = last - kRun > row_begin ? last - kRun : row_begin;
      if (first < begin) first = begin;
      call(first, last);
      last = first;
    }
    return;
  }
  for (int64_t first = begin; first < end;) {
    const int64_t row_end = (first / per_row + 1) * per_row;
    int64_t last = first + kRun < row_end ? first + kRun : row_end;
    if (last > end) last = end;
    call(first, last);
    first = last;
  }
}

/* The largest new values where all are numbers; else *are_numbers is false. */
octavo_status measure_fused(const Step &s, float *amax, bool *are_numbers) {
  const octavo_tensor &shape = s.gradient;
  SharedStats shared[kAdamTensors];
  std::atomic<bool> bounded = true;
  const octavo_status status =
      for_segment_ranges(*s.context, shape.rows, shape.cols, [&](int64_t begin, int64_t end) {
        AdamPeaks peaks = {};
        for_spans(s, begin, end, false, [&](const AdamSpan &span) {
          s.context->level->updates.fused->measure(s.plan, span, &peaks);
        });
        for (int i = 0; i < kAdamTensors; ++i) shared[i].add({peaks.bits[i], false});
        if (!are_bounded(peaks)) bounded.store(false, std::memory_order_relaxed);
      });
  for (int i = 0; i < kAdamTensors; ++i) amax[i] = shared[i].amax();
  *are_numbers = bounded.load(std::memory_order_relaxed);
  return status;
}

octavo_status measure_values(const Step &s, float *amax) {
  AdamPlan plan = s.plan;
  /* A scale is made for values with the decay, also where they are stored without it. */
  for (bool &stores : plan.stores_undecayed) stores = false;
  const octavo_tensor &shape = s.gradient;
  SharedStats shared[kAdamTensors];
  const octavo_status status =
      for_segment_ranges(*s.context, shape.rows, shape.cols, [&](int64_t begin, int64_t end) {
        ValueStats stats[kAdamTensors];
        for_segments(shape.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
          SegmentValues values;
          compute_segment(s, plan, row, col, count, values);
          for (int i = 0; i < kAdamTensors; ++i) {
            if (!plan.is_scaled[i]) continue;
            merge(&stats[i], s.context->level->casts.measure(OCTAVO_F32, values[i], count));
          }
        });
        for (int i = 0; i < kAdamTensors; ++i) shared[i].add(stats[i]);
      });
  for (int i = 0; i < kAdamTensors; ++i) amax[i] = shared[i].amax();
  return status;
}

octavo_status write_item(const Step &s) {
  const octavo_tensor &shape = s.gradient;
  return for_segment_ranges(*s.context, shape.rows, shape.cols, [&](int64_t begin, int64_t end) {
    if (s.is_fused) {
      return for_spans(s, begin, end, true, [&](const AdamSpan &span) {
        s.context->level->updates.fused->write(s.plan, span);
      });
    }
    for_segments(shape.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      SegmentValues values;
      compute_segment(s, s.plan, row, col, count, values);
      for (int i = 0; i < kAdamTensors; ++i) store_target(s, i, row, col, count, values[i]);
    });
  });
}

/* The scales of the new values. */
octavo_status choose_scales(Step *s, uint32_t rule) {
  float amax[kAdamTensors];
  if (s->is_fused) {
    const octavo_status status = measure_fused(*s, amax, &s->is_fused);
    if (status != OCTAVO_OK) return status;
  }
  if (!s->is_fused) {
    const octavo_status status = measure_values(*s, amax);
    if (status != OCTAVO_OK) return status;
  }
  for (int i = 0; i < kAdamTensors; ++i) {
    if (!s->plan.is_scaled[i]) continue;
    const float largest = largest_of(s->plan.dtypes[i]);
    s->plan.new_scale[i] = scale_by_rule(rule, amax[i], 1.0f, largest, 0);
    const bool fits = amax[i] * s->plan.new_scale[i] <= largest && !s->plan.stores_undecayed[i];
    s->plan.saturates = s->plan.saturates || !fits;
  }
  return OCTAVO_OK;
}

octavo_status step_adam_item(const Context &context, const octavo_adam_step &c,
                             const octavo_adam_item &item) {
  const int32_t step = *item.step == INT32_MAX ? INT32_MAX : *item.step + 1;
  Step s = make_step(context, c, item, step);
  octavo_status status = OCTAVO_OK;
  if (s.has_tensor_scale()) status = choose_scales(&s, c.rule);
  if (status == OCTAVO_OK) status = write_item(s);
  if (status != OCTAVO_OK) return status;
  for (int i = 0; i < kAdamTensors; ++i) {
    if (s.plan.is_scaled[i]) *s.targets[i].scale_inv = 1.0f / s.plan.new_scale[i];
  }
  *item.step = step;
  return OCTAVO_OK;
}

}  // namespace

octavo_status adam_step(const Context &context, const octavo_adam_step &c) {
  octavo_status status = OCTAVO_OK;
  if (c.skip != nullptr && *c.skip != 0.0f) return OCTAVO_OK;
  for (uint64_t i = 0; i < c.count; ++i) {
    status = step_adam_item(context, c, c.items[i]);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

}  // namespace octavo
