/* kernels/cuda/device/adam.cuh: one Adam step of many tensors in at most three launches.
 *
 * A tensor's new scale needs the amax of all its new values: the first launch leaves the amax of
 * every chunk in the workspace, the second takes the maximum of a tensor's chunks, computes the
 * values again from the old codes and writes them, the third replaces scales and steps, which the
 * others read. Tensors without such a scale need no first launch. A chunk is what one block of
 * threads takes.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/states.cuh"
#include "kernels/format/adam.h"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

enum AdamTensor { kWeight = 0, kExpAvg = 1, kExpAvgSq = 2, kAdamTensors = 3 };
constexpr int64_t kChunk = 16 * kStateBlock; /* elements */
constexpr int kAdamItems = 24; /* of one launch: their descriptions are its arguments */

struct AdamItem {
  AnyTensor gradient;
  AnyTensor tensors[kAdamTensors];
  float *scale_inv[kAdamTensors]; /* null: plain */
  const float *gradient_scale_inv;
  int32_t *step;
  const float *hyper;
  int64_t first_chunk;
};

struct AdamList {
  AdamItem items[kAdamItems];
  int count;
  int64_t chunks;
  const float *skip;
  int32_t (*parts)[kAdamTensors];       /* amax bits of every chunk */
  float (*new_scale_inv)[kAdamTensors]; /* of every item */
  uint32_t rule;
  uint32_t decay_mode;
  uint32_t state_granularity;
  bool keeps_positive;

  __device__ bool is_skipped() const { return skip != nullptr && *skip != 0.0f; }
};

/* How the tensors of an item are stored. */
struct AdamLayout {
  bool is_scaled[kAdamTensors]; /* one scale for the tensor */
  bool is_blocks[kAdamTensors];
  bool is_undecayed[kAdamTensors];

  __device__ AdamLayout(const AdamList &list, const AdamItem &item) {
    const bool has_blocks = list.state_granularity != OCTAVO_PER_TENSOR;
    for (int i = 0; i < kAdamTensors; ++i) {
      const bool has_scale = item.scale_inv[i] != nullptr;
      is_blocks[i] = has_scale && has_blocks && i != kWeight;
      is_scaled[i] = has_scale && !is_blocks[i];
      is_undecayed[i] = has_scale && i != kWeight && list.decay_mode == OCTAVO_DECAY_L2_MSAMP04;
    }
  }
  __device__ AdamBetas betas() const {
    return is_scaled[kExpAvg] || is_scaled[kExpAvgSq] ? AdamBetas::kSingle : AdamBetas::kDecimal;
  }
};

/* What an item's step computes, and where its elements are. */
struct AdamStep {
  const AdamItem &item;
  AdamLayout layout;
  AdamFactors factors;
  float gradient_factor;
  float gradient_scale;
  uint32_t granularity;

  __device__ AdamStep(const AdamList &list, const AdamItem &it)
      : item(it),
        layout(list, it),
        factors(adam_factors(it.hyper, next_step(*it.step),
                             list.decay_mode != OCTAVO_DECAY_DECOUPLED, layout.betas())),
        gradient_factor(it.gradient_scale_inv == nullptr ? 1.0f : *it.gradient_scale_inv),
        gradient_scale(it.hyper[OCTAVO_HYPER_GRAD_SCALE]),
        granularity(list.state_granularity) {}

  __device__ static int32_t next_step(int32_t step) { return step == INT32_MAX ? step : step + 1; }

  __device__ float old_value(int which, int64_t index) const {
    const AnyTensor &t = item.tensors[which];
    if (layout.is_blocks[which]) return load_state(t, {item.scale_inv[which], granularity}, index);
    const float value = t.load(t.at(index));
    return layout.is_scaled[which] ? value * *item.scale_inv[which] : value;
  }

  /* The new values of one element; `stored`: moments that are stored without the decay are so. */
  __device__ void compute(int64_t index, bool stored, float (&values)[kAdamTensors]) const {
    const float loaded = item.gradient.load(item.gradient.at(index)) * gradient_factor;
    const float gradient = loaded * gradient_scale;
    const AdamElement old = {old_value(kWeight, index), old_value(kExpAvg, index),
                             old_value(kExpAvgSq, index)};
    const AdamElement next = adam_element(factors, old, gradient);
    values[kWeight] = next.weight;
    values[kExpAvg] = next.exp_avg;
    values[kExpAvgSq] = next.exp_avg_sq;
    if (!stored || factors.l2 == 0.0f) return;
    const AdamMoments undecayed = adam_moments(factors, old, gradient);
    if (layout.is_undecayed[kExpAvg]) values[kExpAvg] = undecayed.exp_avg;
    if (layout.is_undecayed[kExpAvgSq]) values[kExpAvgSq] = undecayed.exp_avg_sq;
  }
};

__device__ inline int item_of_chunk(const AdamList &list, int64_t chunk) {
  int item = 0;
  while (item + 1 < list.count && list.items[item + 1].first_chunk <= chunk) ++item;
  return item;
}

__device__ inline int64_t end_chunk(const AdamList &list, int item) {
  return item + 1 < list.count ? list.items[item + 1].first_chunk : list.chunks;
}

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    measure_adam_kernel(AdamList list) {
  __shared__ Stats shared[kWarps];
  if (list.is_skipped()) return;
  for (int64_t chunk = blockIdx.x; chunk < list.chunks; chunk += gridDim.x) {
    const AdamItem &item = list.items[item_of_chunk(list, chunk)];
    const AdamStep step(list, item);
    const int64_t count = item.gradient.rows * item.gradient.cols;
    const int64_t first = (chunk - item.first_chunk) * kChunk;
    Stats stats[kAdamTensors] = {};
    for (int64_t i = first + threadIdx.x; i < first + kChunk && i < count; i += kThreads) {
      float values[kAdamTensors];
      step.compute(i, false, values);
      for (int k = 0; k < kAdamTensors; ++k) stats[k].add(values[k]);
    }
    for (int k = 0; k < kAdamTensors; ++k) {
      const Stats all = merge_block(stats[k], shared);
      if (threadIdx.x == 0) list.parts[chunk][k] = all.amax_bits;
      __syncthreads();
    }
  }
}

/* The new scale of one tensor of an item, the same in every thread. */
__device__ inline float new_scale(const AdamList &list, int item, int which,
                                  Stats (&shared)[kWarps]) {
  Stats stats = {};
  const int64_t end = end_chunk(list, item);
  for (int64_t i = list.items[item].first_chunk + threadIdx.x; i < end; i += kThreads)
    stats.merge({list.parts[i][which], 0});
  stats = merge_block(stats, shared);
  __syncthreads();
  const uint32_t dtype = list.items[item].tensors[which].dtype;
  const float largest = dtype == OCTAVO_E4M3FN ? kMaxE4m3
                        : dtype == OCTAVO_E5M2 ? kMaxE5m2
                                               : kMaxF16;
  return scale_by_rule(list.rule, bits_float(stats.amax_bits), 1.0f, largest, 0);
}

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    write_adam_kernel(AdamList list) {
  __shared__ Stats shared[kWarps];
  __shared__ BlockRange ranges[kWarps];
  if (list.is_skipped()) return;
  for (int64_t chunk = blockIdx.x; chunk < list.chunks; chunk += gridDim.x) {
    const int which_item = item_of_chunk(list, chunk);
    const AdamItem &item = list.items[which_item];
    const AdamStep step(list, item);
    float scales[kAdamTensors];
    for (int k = 0; k < kAdamTensors; ++k) {
      scales[k] = step.layout.is_scaled[k] ? new_scale(list, which_item, k, shared) : 1.0f;
      if (step.layout.is_scaled[k] && chunk == item.first_chunk && threadIdx.x == 0)
        list.new_scale_inv[which_item][k] = 1.0f / scales[k];
    }
    const int64_t count = item.gradient.rows * item.gradient.cols;
    const int64_t first = (chunk - item.first_chunk) * kChunk;
    /* Every thread of the block makes every turn: blocks of states have barriers. */
    for (int64_t begin = first; begin < first + kChunk && begin < count; begin += kThreads) {
      const int64_t index = begin + threadIdx.x;
      const bool exists = index < count;
      float values[kAdamTensors] = {};
      if (exists) step.compute(index, true, values);
      for (int k = 0; k < kAdamTensors; ++k) {
        const AnyTensor &t = item.tensors[k];
        const bool is_raised = k == kExpAvgSq && list.keeps_positive && values[k] > 0.0f;
        if (step.layout.is_blocks[k]) {
          store_state(t, {item.scale_inv[k], list.state_granularity}, index, values[k], exists,
                      k == kExpAvgSq && list.keeps_positive, ranges);
        } else if (exists && (step.layout.is_scaled[k] || t.dtype == OCTAVO_E4M3FN ||
                              t.dtype == OCTAVO_E5M2)) {
          t.cast(t.at(index), values[k] * scales[k], is_raised);
        } else if (exists) {
          t.store(t.at(index), values[k]);
        }
      }
    }
    __syncthreads();
  }
}

[[maybe_unused]] static __global__ void finish_adam_kernel(AdamList list) {
  if (list.is_skipped()) return;
  const int i = static_cast<int>(threadIdx.x);
  if (i >= list.count) return;
  const AdamItem &item = list.items[i];
  const AdamLayout layout(list, item);
  for (int k = 0; k < kAdamTensors; ++k) {
    if (layout.is_scaled[k]) *item.scale_inv[k] = list.new_scale_inv[i][k];
  }
  *item.step = AdamStep::next_step(*item.step);
}

}  // namespace octavo::cuda
