/* adam_one_pass: scales come from bounds of the new values, so the states are read and written
 * once.
 *
 * Before the pass it reads the gradient, for its amax, and those tensors whose amax the caller does
 * not have. During the pass the amax of what is stored is found for the next step.
 */
#include "kernels/check/calls.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/adam_bound.h"
#include "kernels/cpu/adam_spans.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/one_pass.h"
#include "kernels/format/scale_rules.h"
#include "octavo/draft/one_pass.h"

namespace octavo {
namespace {

static_assert(kWeight == static_cast<int>(OCTAVO_AMAX_WEIGHT) &&
              kExpAvg == static_cast<int>(OCTAVO_AMAX_EXP_AVG) &&
              kExpAvgSq == static_cast<int>(OCTAVO_AMAX_EXP_AVG_SQ));

/* What is known of an item before its step. */
struct Known {
  float amax[kAdamTensors] = {};
  float gradient = 0.0f;
  bool is_regular = true; /* numbers only, and no second moment with a sign */
};

ValueStats measure_decoded(const Step &s, int which, const float *values, int64_t count) {
  ValueStats stats = s.context->level->casts.measure(OCTAVO_F32, values, count);
  if (which != kExpAvgSq) return stats;
  int32_t signs = 0;
  for (int64_t i = 0; i < count; ++i) signs |= float_bits(values[i]);
  stats.nonfinite = stats.nonfinite || signs < 0;
  return stats;
}

ValueStats measure_stored(const Step &s, int which, float scale_inv, int64_t row, int64_t col,
                          int64_t count) {
  float values[kSegment];
  load_values(*s.context, s.targets[which].tensor, row, col, count, scale_inv, values);
  return measure_decoded(s, which, values, count);
}

octavo_status measure_old(const Step &s, int which, SharedStats *shared) {
  const octavo_tensor &shape = s.gradient;
  return for_segment_ranges(*s.context, shape.rows, shape.cols, [&](int64_t begin, int64_t end) {
    ValueStats stats;
    for_segments(shape.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      merge(&stats, measure_stored(s, which, s.plan.old_scale_inv[which], row, col, count));
    });
    shared->add(stats);
  });
}

/* Codes of E4M3 first as codes: a pass of single bytes. */
ValueStats measure_gradient_run(const Step &s, const void *gradient, int64_t n) {
  if (s.gradient.dtype == OCTAVO_E4M3FN) {
    const auto *codes = static_cast<const uint8_t *>(gradient);
    const uint8_t highest = s.context->level->updates.highest_code(codes, n);
    if (highest != 0x7F) return {float_bits(decode_e4m3(highest)), false};
  }
  return s.context->level->casts.measure(s.gradient.dtype, gradient, n);
}

octavo_status measure_gradient(const Step &s, Known *known) {
  const octavo_tensor &shape = s.gradient;
  SharedStats shared;
  const octavo_status status =
      for_segment_ranges(*s.context, shape.rows, shape.cols, [&](int64_t begin, int64_t end) {
        ValueStats stats;
        for_spans(s, begin, end, false, [&](const AdamSpan &span) {
          merge(&stats, measure_gradient_run(s, span.gradient, span.n));
        });
        shared.add(stats);
      });
  known->gradient = absolute(shared.amax() * s.plan.gradient_factor * s.plan.gradient_scale);
  known->is_regular = known->is_regular && !shared.nonfinite() && is_finite(known->gradient);
  return status;
}

/* kept: f32[OCTAVO_AMAX_COUNT] of the call. */
octavo_status find_known(const Step &s, const float *kept, Known *known) {
  const bool has_scaled_moment = s.plan.is_scaled[kExpAvg] || s.plan.is_scaled[kExpAvgSq];
  known->is_regular = kept[OCTAVO_AMAX_IRREGULAR] == 0.0f;
  for (int i = 0; i < kAdamTensors; ++i) {
    const bool bounds_l2 = i == kWeight && has_scaled_moment && s.plan.factors.l2 != 0.0f;
    if (!s.plan.is_scaled[i] && !bounds_l2) continue;
    known->amax[i] = kept[i];
    if (s.plan.is_scaled[i] && kept[i] > 0.0f) continue;
    SharedStats shared;
    const octavo_status status = measure_old(s, i, &shared);
    if (status != OCTAVO_OK) return status;
    known->amax[i] = shared.amax();
    known->is_regular = known->is_regular && !shared.nonfinite();
  }
  return has_scaled_moment ? measure_gradient(s, known) : OCTAVO_OK;
}

/* Whether all new values are numbers, which a level's own pass needs. */
bool can_pass(const Step &s, const Known &known, const AdamElement &bounds) {
  const AdamFactors &f = s.plan.factors;
  return s.is_fused && s.plan.is_scaled[kWeight] && s.plan.is_scaled[kExpAvg] &&
         s.plan.is_scaled[kExpAvgSq] && known.is_regular && is_finite(bounds.weight) &&
         is_finite(bounds.exp_avg) && is_finite(bounds.exp_avg_sq) && f.eps > 0.0f &&
         f.beta2 >= 0.0f && f.one_minus_beta2 >= 0.0f && f.ratio_limit >= 0.0f;
}

/* The amax of what FusedAdamLoops.pass stored. */
float amax_of_peak(const AdamPlan &plan, int which, int32_t peak) {
  const float scale_inv = 1.0f / plan.new_scale[which];
  if (which == kExpAvg) return decode_e4m3(static_cast<uint8_t>(peak)) * scale_inv;
  const uint16_t code = encode_f16_saturating(bits_float(peak));
  const bool is_raised = which == kExpAvgSq && plan.keeps_positive && peak > 0 && code == 0;
  return decode_f16(is_raised ? uint16_t{1} : code) * scale_inv;
}

octavo_status pass_fused(const Step &s, float *kept) {
  SharedStats shared[kAdamTensors];
  const octavo_status status = for_segment_ranges(
      *s.context, s.gradient.rows, s.gradient.cols, [&](int64_t begin, int64_t end) {
        AdamPeaks peaks = {};
        for_spans(s, begin, end, false, [&](const AdamSpan &span) {
          s.context->level->updates.fused->pass(s.plan, span, &peaks);
        });
        for (int i = 0; i < kAdamTensors; ++i) shared[i].add({peaks.bits[i], false});
      });
  for (int i = 0; i < kAdamTensors; ++i)
    kept[i] = amax_of_peak(s.plan, i, float_bits(shared[i].amax()));
  return status;
}

octavo_status pass_segments(const Step &s, float *kept) {
  const bool shrinks = s.plan.rounding[kExpAvg] == OCTAVO_ROUND_SHRINKING;
  SharedStats shared[kAdamTensors];
  const octavo_status status = for_segment_ranges(
      *s.context, s.gradient.rows, s.gradient.cols, [&](int64_t begin, int64_t end) {
        ValueStats stats[kAdamTensors];
        for_segments(s.gradient.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
          SegmentValues values;
          float old[kSegment];
          compute_segment(s, s.plan, row, col, count, values, shrinks ? old : nullptr);
          for (int i = 0; i < kAdamTensors; ++i) {
            store_target(s, i, row, col, count, values[i], old);
            if (!s.plan.is_scaled[i]) continue;
            merge(&stats[i], measure_stored(s, i, 1.0f / s.plan.new_scale[i], row, col, count));
          }
        });
        for (int i = 0; i < kAdamTensors; ++i) shared[i].add(stats[i]);
      });
  for (int i = 0; i < kAdamTensors; ++i) {
    kept[i] = shared[i].amax();
    if (shared[i].nonfinite()) kept[OCTAVO_AMAX_IRREGULAR] = 1.0f;
  }
  return status;
}

octavo_status one_pass_item(const Context &context, const octavo_adam_step &c,
                            const octavo_adam_item &item, const Rounding &rounding, float *kept) {
  const int32_t step = next_step(*item.step);
  Step s = make_step(context, c, item, step, rounding);
  AdamFactors &f = s.plan.factors;
  if (s.plan.is_scaled[kWeight]) f.ratio_limit = adam_ratio_limit(f);
  Known known;
  octavo_status status = find_known(s, kept, &known);
  if (status != OCTAVO_OK) return status;
  const AdamElement bounds = adam_bounds(
      f, {known.amax[kWeight], known.amax[kExpAvg], known.amax[kExpAvgSq], known.gradient});
  const float bound[] = {bounds.weight, bounds.exp_avg, bounds.exp_avg_sq};
  for (int i = 0; i < kAdamTensors; ++i) {
    if (!s.plan.is_scaled[i]) continue;
    s.plan.new_scale[i] = scale_by_rule(c.rule, bound[i], 1.0f, largest_of(s.plan.dtypes[i]), 0);
  }
  float found[OCTAVO_AMAX_COUNT] = {};
  status = can_pass(s, known, bounds) ? pass_fused(s, found) : pass_segments(s, found);
  if (status != OCTAVO_OK) return status;
  for (int i = 0; i < kAdamTensors; ++i) {
    if (s.plan.is_scaled[i]) *s.targets[i].scale_inv = 1.0f / s.plan.new_scale[i];
  }
  std::memcpy(kept, found, sizeof(found));
  *item.step = step;
  return OCTAVO_OK;
}

}  // namespace

octavo_status adam_one_pass(const Context &context, const octavo_adam_one_pass &c) {
  const octavo_adam_rounded &r = *c.rounded;
  const octavo_adam_step &step = *r.step;
  if (step.skip != nullptr && *step.skip != 0.0f) return OCTAVO_OK;
  for (uint64_t i = 0; i < step.count; ++i) {
    const octavo_adam_item &item = step.items[i];
    const Rounding rounding = {{r.weight_rounding, r.exp_avg_rounding, r.exp_avg_sq_rounding},
                               r.keys == nullptr ? 0 : r.keys[i]};
    const octavo_status status = has_tensor_scale(step, item)
                                     ? one_pass_item(context, step, item, rounding, c.amax[i])
                                     : step_adam_item(context, step, item, rounding);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

}  // namespace octavo
