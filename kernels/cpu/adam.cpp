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
#include "kernels/cpu/adam_item.h"
#include "kernels/cpu/adam_spans.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/scale_rules.h"
#include "octavo/draft/rounding.h"

namespace octavo {
namespace {

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
    const bool shrinks = s.plan.rounding[kExpAvg] == OCTAVO_ROUND_SHRINKING;
    for_segments(shape.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      SegmentValues values;
      float old[kSegment];
      compute_segment(s, s.plan, row, col, count, values, shrinks ? old : nullptr);
      for (int i = 0; i < kAdamTensors; ++i) store_target(s, i, row, col, count, values[i], old);
    });
  });
}

/* The scales of the new values. */
octavo_status choose_scales(Step *s, uint32_t rule) {
  float amax[kAdamTensors];
  bool are_numbers = false;
  if (s->can_measure) {
    const octavo_status status = measure_fused(*s, amax, &are_numbers);
    if (status != OCTAVO_OK) return status;
  }
  if (!are_numbers) {
    s->is_fused = false;
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

}  // namespace

octavo_status step_adam_item(const Context &context, const octavo_adam_step &c,
                             const octavo_adam_item &item, const Rounding &rounding) {
  const int32_t step = next_step(*item.step);
  Step s = make_step(context, c, item, step, rounding);
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

namespace {

octavo_status step_adam(const Context &context, const octavo_adam_step &c, Rounding rounding,
                        const uint64_t *keys) {
  if (c.skip != nullptr && *c.skip != 0.0f) return OCTAVO_OK;
  for (uint64_t i = 0; i < c.count; ++i) {
    if (keys != nullptr) rounding.key = keys[i];
    const octavo_status status = step_adam_item(context, c, c.items[i], rounding);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

}  // namespace

octavo_status adam_step(const Context &context, const octavo_adam_step &c) {
  return step_adam(context, c, {}, nullptr);
}

octavo_status adam_rounded(const Context &context, const octavo_adam_rounded &c) {
  return step_adam(context, *c.step,
                   {{c.weight_rounding, c.exp_avg_rounding, c.exp_avg_sq_rounding}, 0}, c.keys);
}

}  // namespace octavo
