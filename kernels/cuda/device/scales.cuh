/* kernels/cuda/device/scales.cuh: small kernels between amaxes, scales and steps. */
#pragma once

#include "kernels/cuda/device/walk.cuh"

#include "kernels/format/delayed.h"
#include "kernels/format/power.h"
#include "kernels/format/rounding.h"
#include "octavo/kernels.h"

namespace octavo::cuda {

[[maybe_unused]] static __global__ void scale_from_amax_kernel(octavo_scale_from_amax c) {
  for (int64_t i = first_index(); i < static_cast<int64_t>(c.n); i += index_step()) {
    const float amax = c.amax[i] / c.divide_by;
    const float kept = c.kept == nullptr ? 1.0f : c.kept[i];
    const float scale = scale_by_rule(c.rule, amax, kept, c.format_max, 0);
    if (c.scale != nullptr) c.scale[i] = scale;
    if (c.scale_inv != nullptr) c.scale_inv[i] = 1.0f / scale;
  }
}

/* One thread for each column; neighbours read neighbours, row after row. */
[[maybe_unused]] static __global__ void delayed_scale_update_kernel(octavo_delayed_scale_update c) {
  const int64_t columns = static_cast<int64_t>(c.n);
  const DelayedRule rule = delayed_rule(c);
  for (int64_t i = first_index(); i < columns; i += index_step()) {
    update_delayed_column(
        {c.amax + i, c.history + i, c.scale + i, c.counter == nullptr ? nullptr : c.counter + i,
         columns, static_cast<int64_t>(c.length)},
        rule);
  }
}

[[maybe_unused]] static __global__ void scale_values_kernel(octavo_scale_values c) {
  for (int64_t i = first_index(); i < static_cast<int64_t>(c.n); i += index_step())
    c.out[i] = c.in[i] * c.factor;
}

/* One thread. Both comparisons are written so that NaN falls on the careful side. */
[[maybe_unused]] static __global__ void prescale_update_kernel(octavo_prescale_update c) {
  if (*c.added != 0.0f) {
    const double limit = product(static_cast<double>(c.threshold), static_cast<double>(*c.added));
    const bool halves = !(static_cast<double>(*c.saturated) <= limit);
    const float next = halves ? *c.prescale * 0.5f : *c.prescale * c.growth;
    const float raised = next >= c.low ? next : c.low;
    *c.prescale = raised <= c.high ? raised : c.high;
  }
  *c.saturated = 0.0f;
  *c.added = 0.0f;
}

/* One thread. */
[[maybe_unused]] static __global__ void count_kernel(octavo_count c) {
  if (c.skip != nullptr && *c.skip != 0.0f) return;
  *c.count = next_count(*c.count);
}

/* What a launch takes of the array of addresses, which is the host's. */
constexpr int kGradientScales = 256;
struct GradientScales {
  float *at[kGradientScales];
  int count;
};

/* Every thread computes the same factor. */
[[maybe_unused]] static __global__ void gradient_scale_kernel(octavo_gradient_scale c,
                                                              GradientScales to) {
  double squares = 0.0;
  for (uint64_t i = 0; i < c.sum_count; ++i) squares += static_cast<double>(c.sum[i]);
  const float norm =
      static_cast<float>(product(static_cast<double>(c.factor), square_root_of(squares)));
  const bool skips = !is_finite(norm) || (c.nonfinite != nullptr && *c.nonfinite != 0.0f);
  float scale = c.factor;
  if (c.max_norm > 0 && !skips) {
    const float clip = c.max_norm / (norm + 1e-6f);
    if (clip < 1.0f) scale = c.factor * clip;
  }
  if (threadIdx.x == 0) {
    if (c.norm != nullptr) *c.norm = norm;
    if (c.skip != nullptr) *c.skip = skips ? 1.0f : 0.0f;
  }
  for (int i = static_cast<int>(threadIdx.x); i < to.count; i += static_cast<int>(blockDim.x))
    *to.at[i] = scale;
}

}  // namespace octavo::cuda
