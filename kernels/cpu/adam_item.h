/* kernels/cpu/adam_item.h: one item of an adam_step: what it is, and its new values by segments. */
#pragma once

#include "kernels/cpu/rows.h"
#include "octavo/draft/rounding.h"

namespace octavo {

/* One tensor that the step changes. */
struct Target {
  octavo_tensor tensor;
  float *scale_inv;     /* null: plain; in blocks: all scales of the tensor */
  uint32_t granularity; /* OCTAVO_PER_TENSOR where plain */
};

/* How an item is rounded: that of adam_step unless a draft call says otherwise. */
struct Rounding {
  uint32_t of[kAdamTensors] = {};
  uint64_t key = 0;
};

struct Step {
  const Context *context;
  octavo_tensor gradient;
  Target targets[kAdamTensors];
  AdamPlan plan;
  bool is_fused;    /* by loops of the level that know the layout */
  bool can_measure; /* such loops may find the largest new values */

  bool has_tensor_scale() const {
    return plan.is_scaled[kWeight] || plan.is_scaled[kExpAvg] || plan.is_scaled[kExpAvgSq];
  }
};

using SegmentValues = float[kAdamTensors][kSegment];

/* `step`: its number. */
Step make_step(const Context &context, const octavo_adam_step &c, const octavo_adam_item &item,
               int32_t step, const Rounding &rounding);

/* The new values of one segment, from the old contents of all tensors. old_exp_avg takes the old
 * values of one; it may be null. */
void compute_segment(const Step &s, const AdamPlan &plan, int64_t row, int64_t col, int64_t count,
                     SegmentValues &values, float *old_exp_avg = nullptr);

/* Writes them by the tensor's rounding; old_exp_avg is read where exp_avg shrinks. */
void store_target(const Step &s, int which, int64_t row, int64_t col, int64_t count,
                  const float *values, const float *old_exp_avg);

/* The whole step, with scales of its new values. */
octavo_status step_adam_item(const Context &context, const octavo_adam_step &c,
                             const octavo_adam_item &item, const Rounding &rounding);

}  // namespace octavo
