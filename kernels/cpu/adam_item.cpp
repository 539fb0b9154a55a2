/* The Adam step of one tensor: plain tensors, codes with one scale, states in blocks.
 *
 * A tensor's new scale needs the amax of all its new values, so there are two passes; the second
 * computes the values again from the old codes, which therefore change in it only. A block's scale
 * needs its own values only and is written with them, in the second pass.
 */
#include "kernels/cpu/adam_item.h"

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/format/adam.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

enum { kWeight = 0, kExpAvg = 1, kExpAvgSq = 2, kTensors = 3 };

/* One tensor that the step changes. */
struct Target {
  octavo_tensor tensor;
  float *scale_inv;     /* null: plain; in blocks: all scales of the tensor */
  uint32_t granularity; /* OCTAVO_PER_TENSOR where plain */
  bool keeps_positive;
  float old_scale_inv; /* per tensor; else 1 */
  float new_scale;

  bool has_tensor_scale() const { return scale_inv != nullptr && granularity == OCTAVO_PER_TENSOR; }
};

struct Step {
  const Context *context;
  octavo_tensor gradient;
  AdamFactors factors;
  float gradient_factor;
  float gradient_scale;
  bool stores_undecayed; /* OCTAVO_DECAY_L2_MSAMP04 */
  Target targets[kTensors];
};

using SegmentValues = float[kTensors][kSegment];

float largest_value(uint32_t dtype) {
  if (dtype == OCTAVO_E4M3FN) return kMaxE4m3;
  return dtype == OCTAVO_E5M2 ? kMaxE5m2 : kMaxF16;
}

Target make_target(const octavo_tensor &t, float *scale_inv, uint32_t granularity) {
  const uint32_t own = scale_inv == nullptr ? uint32_t{OCTAVO_PER_TENSOR} : granularity;
  const bool is_read = scale_inv != nullptr && own == OCTAVO_PER_TENSOR;
  return {t, scale_inv, own, false, is_read ? *scale_inv : 1.0f, 1.0f};
}

Step make_step(const Context &context, const octavo_adam_step &c, const octavo_adam_item &item,
               int32_t step) {
  const bool has_scaled_state =
      item.exp_avg_scale_inv != nullptr || item.exp_avg_sq_scale_inv != nullptr;
  const bool has_blocks = has_scaled_state && c.state_granularity != OCTAVO_PER_TENSOR;
  const AdamBetas betas =
      has_scaled_state && !has_blocks ? AdamBetas::kSingle : AdamBetas::kDecimal;
  Step s = {&context,
            item.gradient,
            adam_factors(item.hyper, step, c.decay_mode != OCTAVO_DECAY_DECOUPLED, betas),
            item.gradient_scale_inv == nullptr ? 1.0f : *item.gradient_scale_inv,
            item.hyper[OCTAVO_HYPER_GRAD_SCALE],
            c.decay_mode == OCTAVO_DECAY_L2_MSAMP04,
            {make_target(item.weight, item.weight_scale_inv, OCTAVO_PER_TENSOR),
             make_target(item.exp_avg, item.exp_avg_scale_inv, c.state_granularity),
             make_target(item.exp_avg_sq, item.exp_avg_sq_scale_inv, c.state_granularity)}};
  s.targets[kExpAvgSq].keeps_positive = (c.flags & OCTAVO_ADAM_KEEP_POSITIVE) != 0;
  if (has_blocks) {
    s.gradient = as_row(s.gradient);
    for (Target &t : s.targets) t.tensor = as_row(t.tensor);
  }
  return s;
}

void load_target(const Context &context, const Target &t, int64_t row, int64_t col, int64_t count,
                 float *values) {
  if (t.granularity == OCTAVO_PER_TENSOR) {
    load_values(context, t.tensor, row, col, count, t.old_scale_inv, values);
  } else {
    load_state_blocks(context, t.tensor, t.scale_inv, t.granularity, col, count, values);
  }
}

void store_target(const Context &context, const Target &t, int64_t row, int64_t col, int64_t count,
                  const float *values) {
  char *out = element(t.tensor, row, col);
  if (t.granularity != OCTAVO_PER_TENSOR) {
    store_state_blocks(t.tensor, t.scale_inv, t.granularity, col, count, values);
  } else if (t.scale_inv != nullptr || is_dtype(t.tensor.dtype, Dtypes::kFloat8)) {
    context.level->cast(t.tensor.dtype, values, count, t.new_scale, out);
  } else {
    return context.level->store(t.tensor.dtype, values, count, out);
  }
  if (t.keeps_positive) keep_positive(t.tensor.dtype, values, count, out);
}

/* What a pass wants: the values that the step leads to, or those that it stores. They differ where
 * MS-AMP 0.4.0 leaves the decay out of stored moments. */
enum class Moments { kTrue, kStored };

/* The new values of one segment, from the old contents of all tensors. */
void compute_segment(const Step &s, int64_t row, int64_t col, int64_t count, Moments wanted,
                     SegmentValues &values) {
  float gradient[kSegment];
  load_values(*s.context, s.gradient, row, col, count, s.gradient_factor, gradient);
  for (int i = 0; i < kTensors; ++i) {
    load_target(*s.context, s.targets[i], row, col, count, values[i]);
  }
  const bool undecayed = wanted == Moments::kStored && s.stores_undecayed;
  const bool undecayed_exp_avg = undecayed && s.targets[kExpAvg].scale_inv != nullptr;
  const bool undecayed_exp_avg_sq = undecayed && s.targets[kExpAvgSq].scale_inv != nullptr;
  for (int64_t i = 0; i < count; ++i) {
    const AdamElement old = {values[kWeight][i], values[kExpAvg][i], values[kExpAvgSq][i]};
    const float g = gradient[i] * s.gradient_scale;
    const AdamElement e = adam_element(s.factors, old, g);
    values[kWeight][i] = e.weight;
    values[kExpAvg][i] = e.exp_avg;
    values[kExpAvgSq][i] = e.exp_avg_sq;
    if (!undecayed) continue;
    const AdamMoments raw = adam_moments(s.factors, old, g);
    if (undecayed_exp_avg) values[kExpAvg][i] = raw.exp_avg;
    if (undecayed_exp_avg_sq) values[kExpAvgSq][i] = raw.exp_avg_sq;
  }
}

octavo_status measure_item(const Step &s, SharedStats *shared) {
  const octavo_tensor &weight = s.targets[kWeight].tensor;
  return for_segment_ranges(*s.context, weight.rows, weight.cols, [&](int64_t begin, int64_t end) {
    ValueStats stats[kTensors];
    for_segments(weight.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      SegmentValues values;
      compute_segment(s, row, col, count, Moments::kTrue, values);
      for (int i = 0; i < kTensors; ++i) {
        if (!s.targets[i].has_tensor_scale()) continue;
        merge(&stats[i], s.context->level->measure(values[i], count));
      }
    });
    for (int i = 0; i < kTensors; ++i) shared[i].add(stats[i]);
  });
}

octavo_status write_item(const Step &s) {
  const octavo_tensor &weight = s.targets[kWeight].tensor;
  return for_segment_ranges(*s.context, weight.rows, weight.cols, [&](int64_t begin, int64_t end) {
    for_segments(weight.cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      SegmentValues values;
      compute_segment(s, row, col, count, Moments::kStored, values);
      for (int i = 0; i < kTensors; ++i) {
        store_target(*s.context, s.targets[i], row, col, count, values[i]);
      }
    });
  });
}

}  // namespace

octavo_status step_adam_item(const Context &context, const octavo_adam_step &c,
                             const octavo_adam_item &item) {
  const int32_t step = *item.step == INT32_MAX ? INT32_MAX : *item.step + 1;
  Step s = make_step(context, c, item, step);
  bool measures = false;
  for (const Target &t : s.targets) measures = measures || t.has_tensor_scale();
  if (measures) {
    SharedStats shared[kTensors];
    const octavo_status status = measure_item(s, shared);
    if (status != OCTAVO_OK) return status;
    for (int i = 0; i < kTensors; ++i) {
      Target &t = s.targets[i];
      if (!t.has_tensor_scale()) continue;
      t.new_scale = scale_by_rule(c.rule, shared[i].amax(), 1.0f, largest_value(t.tensor.dtype), 0);
    }
  }
  const octavo_status status = write_item(s);
  if (status != OCTAVO_OK) return status;
  for (const Target &t : s.targets) {
    if (t.has_tensor_scale()) *t.scale_inv = 1.0f / t.new_scale;
  }
  *item.step = step;
  return OCTAVO_OK;
}

}  // namespace octavo
