/* adam_step: Adam over tensors whose weight and states are plain or codes with a per-tensor scale.
 *
 * A scaled tensor's new scale needs the amax of all its new values, so there are two passes; the
 * second computes the values again from the old codes, which therefore change in it only.
 */
#include <cstdint>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/adam.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

enum { kWeight = 0, kExpAvg = 1, kExpAvgSq = 2, kTensors = 3 };

/* One tensor that the step changes; scale_inv null: plain. */
struct Target {
  const octavo_tensor *tensor;
  float *scale_inv;
  float old_scale_inv;
  float new_scale;
};

struct Step {
  const Context *context;
  const octavo_adam_item *item;
  AdamFactors factors;
  float gradient_factor;
  float gradient_scale;
  Target targets[kTensors];
};

float largest_value(uint32_t dtype) {
  if (dtype == OCTAVO_E4M3FN) return kMaxE4m3;
  return dtype == OCTAVO_E5M2 ? kMaxE5m2 : kMaxF16;
}

void check_target(Check *check, const octavo_tensor &t, const float *scale_inv, const char *name,
                  const octavo_adam_item &item) {
  check->tensor(&t, name, scale_inv == nullptr ? Dtypes::kAny : Dtypes::kQuantized);
  check->accumulator(scale_inv, name);
  if (check->ok()) check->same_shape(&t, name, &item.weight, "weight");
}

void check_item(Check *check, const octavo_adam_item &item) {
  check_target(check, item.weight, item.weight_scale_inv, "weight", item);
  check_target(check, item.exp_avg, item.exp_avg_scale_inv, "exp_avg", item);
  check_target(check, item.exp_avg_sq, item.exp_avg_sq_scale_inv, "exp_avg_sq", item);
  check->tensor(&item.gradient, "gradient", Dtypes::kAny);
  check->accumulator(item.gradient_scale_inv, "gradient_scale_inv");
  if (check->ok()) check->same_shape(&item.gradient, "gradient", &item.weight, "weight");
  check->not_null(item.step, "step");
  check->not_null(item.hyper, "hyper");
}

Target make_target(const octavo_tensor &t, float *scale_inv) {
  return {&t, scale_inv, scale_inv == nullptr ? 1.0f : *scale_inv, 1.0f};
}

/* The new values of one segment, from the old contents of all tensors. */
void compute_segment(const Step &s, int64_t row, int64_t col, int64_t count,
                     float (*values)[kSegment]) {
  float gradient[kSegment];
  load_values(*s.context, s.item->gradient, row, col, count, s.gradient_factor, gradient);
  for (int i = 0; i < kTensors; ++i) {
    const Target &t = s.targets[i];
    load_values(*s.context, *t.tensor, row, col, count, t.old_scale_inv, values[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    const AdamElement old = {values[kWeight][i], values[kExpAvg][i], values[kExpAvgSq][i]};
    const AdamElement e = adam_element(s.factors, old, gradient[i] * s.gradient_scale);
    values[kWeight][i] = e.weight;
    values[kExpAvg][i] = e.exp_avg;
    values[kExpAvgSq][i] = e.exp_avg_sq;
  }
}

octavo_status measure_item(const Step &s, SharedStats *shared) {
  const int64_t cols = s.item->weight.cols;
  return for_segment_ranges(*s.context, s.item->weight.rows, cols, [&](int64_t begin, int64_t end) {
    ValueStats stats[kTensors];
    for_segments(cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      float values[kTensors][kSegment];
      compute_segment(s, row, col, count, values);
      for (int i = 0; i < kTensors; ++i) {
        if (s.targets[i].scale_inv == nullptr) continue;
        merge(&stats[i], s.context->level->measure(values[i], count));
      }
    });
    for (int i = 0; i < kTensors; ++i) shared[i].add(stats[i]);
  });
}

octavo_status write_item(const Step &s) {
  const int64_t cols = s.item->weight.cols;
  return for_segment_ranges(*s.context, s.item->weight.rows, cols, [&](int64_t begin, int64_t end) {
    for_segments(cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      float values[kTensors][kSegment];
      compute_segment(s, row, col, count, values);
      for (int i = 0; i < kTensors; ++i) {
        const Target &t = s.targets[i];
        char *out = element(*t.tensor, row, col);
        if (t.scale_inv != nullptr || is_dtype(t.tensor->dtype, Dtypes::kFloat8)) {
          s.context->level->cast(t.tensor->dtype, values[i], count, t.new_scale, out);
        } else {
          s.context->level->store(t.tensor->dtype, values[i], count, out);
        }
      }
    });
  });
}

octavo_status step_item(const Context &context, const octavo_adam_step &c,
                        const octavo_adam_item &item) {
  const int32_t step = *item.step == INT32_MAX ? INT32_MAX : *item.step + 1;
  const bool has_scaled_state =
      item.exp_avg_scale_inv != nullptr || item.exp_avg_sq_scale_inv != nullptr;
  const AdamBetas betas = has_scaled_state ? AdamBetas::kSingle : AdamBetas::kDecimal;
  Step s = {&context,
            &item,
            adam_factors(item.hyper, step, c.decay_mode == 1, betas),
            item.gradient_scale_inv == nullptr ? 1.0f : *item.gradient_scale_inv,
            item.hyper[OCTAVO_HYPER_GRAD_SCALE],
            {make_target(item.weight, item.weight_scale_inv),
             make_target(item.exp_avg, item.exp_avg_scale_inv),
             make_target(item.exp_avg_sq, item.exp_avg_sq_scale_inv)}};
  octavo_status status = OCTAVO_OK;
  SharedStats shared[kTensors];
  bool is_scaled = false;
  for (const Target &t : s.targets) is_scaled = is_scaled || t.scale_inv != nullptr;
  if (is_scaled) {
    status = measure_item(s, shared);
    if (status != OCTAVO_OK) return status;
    for (int i = 0; i < kTensors; ++i) {
      Target &t = s.targets[i];
      if (t.scale_inv == nullptr) continue;
      t.new_scale =
          scale_by_rule(c.rule, shared[i].amax(), 1.0f, largest_value(t.tensor->dtype), 0);
    }
  }
  status = write_item(s);
  if (status != OCTAVO_OK) return status;
  for (const Target &t : s.targets) {
    if (t.scale_inv != nullptr) *t.scale_inv = 1.0f / t.new_scale;
  }
  *item.step = step;
  return OCTAVO_OK;
}

}  // namespace

octavo_status adam_step(void *ctx, const octavo_adam_step *c) {
  const Context &context = context_of(ctx);
  Check check(context, "adam_step");
  if (!check.call(c)) return check.status();
  if (c->count > 0) check.not_null(c->items, "items");
  if (c->decay_mode > 1) {
    check.fail(OCTAVO_UNSUPPORTED, "decay_mode = %u; expected 0 (decoupled) or 1 (L2)",
               c->decay_mode);
  }
  bool is_scaled = false;
  for (uint64_t i = 0; i < c->count && check.ok(); ++i) {
    const octavo_adam_item &item = c->items[i];
    check_item(&check, item);
    is_scaled = is_scaled || item.weight_scale_inv != nullptr ||
                item.exp_avg_scale_inv != nullptr || item.exp_avg_sq_scale_inv != nullptr;
  }
  if (is_scaled) check.rule(c->rule);
  if (!check.ok()) return check.status();

  if (c->skip != nullptr && *c->skip != 0.0f) return OCTAVO_OK;
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_status status = step_item(context, *c, c->items[i]);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

}  // namespace octavo
