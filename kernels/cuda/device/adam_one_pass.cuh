/* kernels/cuda/device/adam_one_pass.cuh: the three launches of adam_one_pass.
 *
 * The first leaves amaxes of gradients and of tensors whose amax the caller does not have in the
 * workspace; the second, a block for each item, makes scales of bounds; the third steps and writes
 * every element, and gathers the amaxes of what it stored.
 */
#pragma once

#include "kernels/cuda/device/adam.cuh"
#include "kernels/format/one_pass.h"
#include "octavo/draft/one_pass.h"

namespace octavo::cuda {

/* Of stored values: a second moment with a sign is irregular, too. */
__device__ __forceinline__ void add_stored(Stats *stats, int which, float value) {
  stats->add(value);
  if (which == kExpAvgSq && float_bits(value) < 0) stats->nonfinite = 1;
}

/* Which tensors of an item the first launch reads: [kGradient] is the gradient. */
struct AdamUnknown {
  bool is[kAdamTensors + 1];

  __device__ AdamUnknown(const AdamItem &item, const AdamLayout &layout, bool has_l2) : is{} {
    if (item.amax == nullptr) return;
    is[kGradient] = layout.is_scaled[kExpAvg] || layout.is_scaled[kExpAvgSq];
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) is[k] = layout.is_scaled[k] && !(item.amax[k] > 0.0f);
    /* A plain weight is the host's, which may change it at any time. */
    if (!layout.is_scaled[kWeight]) is[kWeight] = has_l2 && is[kGradient];
  }
};

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads, kRoundBlocks)
    peak_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stats shared[kWarps];
  __shared__ Stage stages[kThreads];
  if (list.is_skipped()) return;
  int64_t chunk = blockIdx.x;
  for (int which = 0; which < list.count; ++which) {
    const int64_t end = list.end_chunk(which);
    if (chunk >= end) continue;
    const AdamItem &item = list.items[which];
    const AdamLayout layout = list.layout(item);
    const AdamStep &step = share_step(list, which, nullptr);
    const AdamUnknown unknown(item, layout, step.factors.l2 != 0.0f);
    const int64_t part = chunk; /* the block's own, as in measure_adam_kernel */
    Stats stats[kAdamTensors + 1] = {};
    for (; chunk < end; chunk += gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        if (n == 0) return;
        const AdamPack pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        for (int k = 0; k <= kAdamTensors; ++k) {
          if (!unknown.is[k]) continue;
          float values[kPack];
          decode_pack(item.dtype[k], pack.load(k), values);
          const float factor = k == kGradient ? 1.0f : step.old_scale_inv[k];
          for (int i = 0; i < n; ++i) add_stored(&stats[k], k, values[i] * factor);
        }
      });
    }
    for (int k = 0; k <= kAdamTensors; ++k) {
      const Stats all = merge_block(stats[k], shared);
      if (threadIdx.x == 0) list.peaks[part][k] = all.amax_bits;
      __syncthreads();
    }
  }
}

/* A block for each item. */
[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    bound_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stats shared[kWarps];
  if (list.is_skipped()) return;
  const int which = static_cast<int>(blockIdx.x);
  const AdamItem &item = list.items[which];
  const AdamLayout layout = list.layout(item);
  Stats stats[kAdamTensors + 1] = {};
  merge_parts(list, which, list.peaks, stats, shared);
  if (threadIdx.x != 0) return;
  AdamStep step = adam_step_of(list, item);
  if (item.amax != nullptr) {
    if (layout.is_scaled[kWeight]) step.factors.ratio_limit = adam_ratio_limit(step.factors);
    const AdamUnknown unknown(item, layout, step.factors.l2 != 0.0f);
    float amax[kAdamTensors];
    for (int k = 0; k < kAdamTensors; ++k) {
      amax[k] = unknown.is[k]         ? bits_float(stats[k].amax_bits)
                : layout.is_scaled[k] ? item.amax[k]
                                      : 0.0f;
    }
    const float gradient = absolute(bits_float(stats[kGradient].amax_bits) * step.gradient_factor *
                                    step.gradient_scale);
    const AdamElement bounds =
        adam_bounds(step.factors, {amax[kWeight], amax[kExpAvg], amax[kExpAvgSq], gradient});
    const float bound[] = {bounds.weight, bounds.exp_avg, bounds.exp_avg_sq};
    for (int k = 0; k < kAdamTensors; ++k) {
      if (!layout.is_scaled[k]) continue;
      step.new_scale[k] = scale_by_rule(list.rule, bound[k], 1.0f, largest_code(item.dtype[k]), 0);
      *item.scale_inv[k] = 1.0f / step.new_scale[k];
    }
    /* The third launch raises them. */
    for (int k = 0; k < OCTAVO_AMAX_COUNT; ++k) item.amax[k] = 0.0f;
  }
  list.steps[which] = step;
  *item.step = next_step(*item.step);
}

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads, kRoundBlocks)
    pass_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stats shared[kWarps];
  __shared__ Stage stages[kThreads];
  if (list.is_skipped()) return;
  int64_t chunk = list.chunks - 1 - blockIdx.x;
  for (int which = list.count - 1; which >= 0; --which) {
    const AdamItem &item = list.items[which];
    if (chunk < item.first_chunk) continue;
    const AdamLayout layout = list.layout(item);
    const AdamStep &step = share_step(list, which, list.steps);
    Stats stats[kAdamTensors] = {};
    for (; chunk >= item.first_chunk; chunk -= gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        const AdamPack pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        AdamValues values = {};
        float old_exp_avg[kPack] = {};
        if (n > 0) pack.compute<true>(true, values, old_exp_avg);
        pack.store<true>(values, old_exp_avg, [&](int k, const RawPack &raw) {
          if (!layout.is_scaled[k]) return;
          float stored[kPack];
          decode_pack(item.dtype[k], raw, stored);
          for (int i = 0; i < n; ++i)
            add_stored(&stats[k], k, stored[i] * (1.0f / step.new_scale[k]));
        });
      });
    }
    if (item.amax == nullptr) continue;
    for (int k = 0; k < kAdamTensors; ++k) {
      const Stats all = merge_block(stats[k], shared);
      if (threadIdx.x == 0) publish(all, item.amax + k, item.amax + OCTAVO_AMAX_IRREGULAR);
      __syncthreads();
    }
  }
}

}  // namespace octavo::cuda
