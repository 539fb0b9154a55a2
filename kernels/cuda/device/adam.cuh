/* kernels/cuda/device/adam.cuh: one Adam step of many tensors in two or three launches.
 *
 * A tensor's new scale needs the amax of all its new values. Where a list has such a scale, the
 * first launch leaves amaxes of every item in the workspace; the second, a block for each item,
 * makes the scales of them, writes scales and step, and leaves in the workspace what the third
 * needs, which computes the values again from the old codes and writes them. It begins with what
 * the first one read last, which may still be in the second-level cache. A list without such a
 * scale is written at once; its steps follow. A chunk is what one block of threads takes at a time.
 */
#pragma once

#include "kernels/cuda/device/states.cuh"
#include "kernels/format/adam.h"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

/* The tensors of an item; the step changes the first three. */
enum AdamTensor { kWeight = 0, kExpAvg = 1, kExpAvgSq = 2, kAdamTensors = 3, kGradient = 3 };
constexpr int64_t kTurn = int64_t{kThreads} * kPack; /* elements that a block takes at once */
constexpr int64_t kChunk = 2 * kTurn;
constexpr int kAdamItems = 32; /* of one launch: their descriptions are its arguments */
constexpr int kAdamBlocks = 3; /* of a multiprocessor at once: 80 registers a thread */
static_assert(kTurn % kStateBlock == 0);

struct AdamItem {
  void *data[kAdamTensors + 1];
  int64_t stride[kAdamTensors + 1];
  float *scale_inv[kAdamTensors + 1]; /* null: plain */
  int32_t *step;
  const float *hyper;
  int64_t count;
  int64_t cols;
  double per_cols; /* 1 / cols */
  int64_t first_chunk;
  uint32_t dtype[kAdamTensors + 1];
  uint32_t is_dense; /* and all addresses are multiples of 16 */

  __device__ int bytes(int which) const {
    return static_cast<int>(OCTAVO_DTYPE_BITS(dtype[which]) / 8);
  }
};

/* How the tensors of an item are stored. */
struct AdamLayout {
  bool is_scaled[kAdamTensors]; /* one scale for the tensor */
  bool is_blocks[kAdamTensors];
  bool is_undecayed[kAdamTensors];
};

/* What an item's step computes: once an item, not once a thread. */
struct AdamStep {
  AdamFactors factors;
  float gradient_factor;
  float gradient_scale;
  float old_scale_inv[kAdamTensors]; /* 1 where there is none */
  float new_scale[kAdamTensors];
};

struct AdamList {
  AdamItem items[kAdamItems];
  int count;
  int blocks; /* of the launches over chunks */
  int64_t chunks;
  const float *skip;
  int32_t (*parts)[kAdamTensors]; /* amax bits; an item's are those from its first chunk on */
  AdamStep *steps;                /* of every item; null: nothing of the list has such a scale */
  uint32_t rule;
  uint32_t decay_mode;
  uint32_t state_granularity;
  bool keeps_positive;

  __device__ bool is_skipped() const { return skip != nullptr && *skip != 0.0f; }
  __device__ AdamLayout layout(const AdamItem &item) const {
    AdamLayout l;
    const bool has_blocks = state_granularity != OCTAVO_PER_TENSOR;
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) {
      const bool has_scale = item.scale_inv[k] != nullptr;
      l.is_blocks[k] = has_scale && has_blocks && k != kWeight;
      l.is_scaled[k] = has_scale && !l.is_blocks[k];
      l.is_undecayed[k] = has_scale && k != kWeight && decay_mode == OCTAVO_DECAY_L2_MSAMP04;
    }
    return l;
  }
  __device__ int64_t end_chunk(int item) const {
    return item + 1 < count ? items[item + 1].first_chunk : chunks;
  }
};

__device__ inline int32_t next_step(int32_t step) {
  return step == INT32_MAX ? step : step + 1;
}

/* With new scales of 1. */
__device__ inline AdamStep adam_step_of(const AdamList &list, const AdamItem &item) {
  const AdamLayout layout = list.layout(item);
  const bool has_tensor_states = layout.is_scaled[kExpAvg] || layout.is_scaled[kExpAvgSq];
  AdamStep s;
  s.factors =
      adam_factors(item.hyper, next_step(*item.step), list.decay_mode != OCTAVO_DECAY_DECOUPLED,
                   has_tensor_states ? AdamBetas::kSingle : AdamBetas::kDecimal);
  s.gradient_factor = item.scale_inv[kGradient] == nullptr ? 1.0f : *item.scale_inv[kGradient];
  s.gradient_scale = item.hyper[OCTAVO_HYPER_GRAD_SCALE];
#pragma unroll
  for (int k = 0; k < kAdamTensors; ++k) {
    s.old_scale_inv[k] = layout.is_scaled[k] ? *item.scale_inv[k] : 1.0f;
    s.new_scale[k] = 1.0f;
  }
  return s;
}

/* An item's step from `ready`, or computed where that is null: the same in every thread of the
 * block; two barriers. */
__device__ inline const AdamStep &share_step(const AdamList &list, int item,
                                             const AdamStep *ready) {
  __shared__ AdamStep shared;
  __syncthreads();
  if (threadIdx.x == 0)
    shared = ready != nullptr ? ready[item] : adam_step_of(list, list.items[item]);
  __syncthreads();
  return shared;
}

using AdamValues = float[kAdamTensors][kPack];

/* The old values of a pack whose first n elements exist, then the new ones. `is_stored`: as they
 * are stored, with moments that leave out the decay. */
struct AdamPack {
  const AdamList &list;
  const AdamItem &item;
  const AdamStep &step;
  const AdamLayout &layout;
  Stage *stage;
  int64_t first;
  int n;

  __device__ bool is_whole() const { return item.is_dense != 0 && n == kPack; }
  __device__ PackWalk walk() const { return walk_from(first, item.cols, item.per_cols); }
  __device__ char *at(int which) const {
    return static_cast<char *>(item.data[which]) + first * item.bytes(which);
  }
  __device__ StateScales scales(int which) const {
    return {item.scale_inv[which], list.state_granularity};
  }

  __device__ void compute(bool is_stored, AdamValues &values) const {
    RawPack raw[kAdamTensors + 1];
    if (is_whole()) {
#pragma unroll
      for (int k = 0; k <= kAdamTensors; ++k) raw[k] = load_pack(at(k), item.bytes(k));
    } else {
      const PackWalk from = walk();
#pragma unroll
      for (int k = 0; k <= kAdamTensors; ++k)
        raw[k] = load_each(item.data[k], item.bytes(k), item.stride[k], from, n, stage);
    }
    float gradient[kPack];
    decode_pack(item.dtype[kGradient], raw[kGradient], gradient);
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) {
      if (layout.is_blocks[k])
        decode_state(scales(k), first, raw[k], stage, values[k]);
      else
        decode_pack(item.dtype[k], raw[k], values[k]);
    }
    const bool leaves_out = is_stored && step.factors.l2 != 0.0f;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float g = gradient[i] * step.gradient_factor * step.gradient_scale;
      const AdamElement old = {values[kWeight][i] * step.old_scale_inv[kWeight],
                               values[kExpAvg][i] * step.old_scale_inv[kExpAvg],
                               values[kExpAvgSq][i] * step.old_scale_inv[kExpAvgSq]};
      const AdamElement next = adam_element(step.factors, old, g);
      values[kWeight][i] = next.weight;
      values[kExpAvg][i] = next.exp_avg;
      values[kExpAvgSq][i] = next.exp_avg_sq;
      if (!leaves_out) continue;
      const AdamMoments undecayed = adam_moments(step.factors, old, g);
      if (layout.is_undecayed[kExpAvg]) values[kExpAvg][i] = undecayed.exp_avg;
      if (layout.is_undecayed[kExpAvgSq]) values[kExpAvgSq][i] = undecayed.exp_avg_sq;
    }
  }

  __device__ RawPack encode(int which, const float (&values)[kPack]) const {
    const bool is_raised = which == kExpAvgSq && list.keeps_positive;
    if (layout.is_blocks[which])
      return encode_state(scales(which), first, values, n, is_raised, stage);
    const uint32_t dtype = item.dtype[which];
    const bool is_scaled = layout.is_scaled[which];
    float scaled[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) scaled[i] = values[i] * step.new_scale[which];
    RawPack raw = {};
    encode_pack(dtype, is_scaled, scaled, &raw);
    if (is_raised && (is_scaled || item.bytes(which) == 1)) raise_pack(dtype, values, &raw);
    return raw;
  }
  /* Every lane of a warp calls it. */
  __device__ void store(const AdamValues &values) const {
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) {
      const RawPack raw = encode(k, values[k]);
      if (is_whole())
        store_pack(at(k), item.bytes(k), raw);
      else if (n > 0)
        store_each(item.data[k], item.bytes(k), item.stride[k], walk(), n, raw, stage);
    }
  }
};

/* Calls body(first, n) for each of the thread's packs in a chunk; n may be 0. */
template <typename Body>
__device__ void for_packs(const AdamItem &item, int64_t chunk, Body &&body) {
  const int64_t begin = (chunk - item.first_chunk) * kChunk;
  for (int64_t turn = begin; turn < begin + kChunk && turn < item.count; turn += kTurn) {
    const int64_t first = turn + threadIdx.x * kPack;
    const int64_t left = item.count - first;
    body(first, static_cast<int>(left < 0 ? 0 : left < kPack ? left : kPack));
  }
}

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads, kAdamBlocks)
    measure_adam_kernel(const __grid_constant__ AdamList list) {
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
    const int64_t part = chunk; /* below the item's first chunk plus gridDim.x: the block's own */
    float largest[kAdamTensors] = {};
    for (; chunk < end; chunk += gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        if (n == 0) return;
        AdamValues values;
        AdamPack{list, item, step, layout, stages + threadIdx.x, first, n}.compute(false, values);
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          for (int k = 0; k < kAdamTensors; ++k) {
            if (i < n) largest[k] = larger(largest[k], absolute(values[k][i]));
          }
        }
      });
    }
    for (int k = 0; k < kAdamTensors; ++k) {
      const Stats all = merge_block({float_bits(largest[k]), 0}, shared);
      if (threadIdx.x == 0) list.parts[part][k] = all.amax_bits;
      __syncthreads();
    }
  }
}

/* A block for each item. */
[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    scale_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stats shared[kWarps];
  if (list.is_skipped()) return;
  const int which = static_cast<int>(blockIdx.x);
  const AdamItem &item = list.items[which];
  const AdamLayout layout = list.layout(item);
  const int64_t chunks = list.end_chunk(which) - item.first_chunk;
  const int64_t parts = chunks < list.blocks ? chunks : list.blocks;
  Stats stats[kAdamTensors] = {};
  for (int64_t i = threadIdx.x; i < parts; i += kThreads) {
    for (int k = 0; k < kAdamTensors; ++k) stats[k].merge({list.parts[item.first_chunk + i][k], 0});
  }
  for (int k = 0; k < kAdamTensors; ++k) {
    stats[k] = merge_block(stats[k], shared);
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  AdamStep step = adam_step_of(list, item);
#pragma unroll
  for (int k = 0; k < kAdamTensors; ++k) {
    if (!layout.is_scaled[k]) continue;
    const float largest = item.dtype[k] == OCTAVO_E4M3FN ? kMaxE4m3
                          : item.dtype[k] == OCTAVO_E5M2 ? kMaxE5m2
                                                         : kMaxF16;
    step.new_scale[k] = scale_by_rule(list.rule, bits_float(stats[k].amax_bits), 1.0f, largest, 0);
    *item.scale_inv[k] = 1.0f / step.new_scale[k];
  }
  list.steps[which] = step;
  *item.step = next_step(*item.step);
}

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads, kAdamBlocks)
    write_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stage stages[kThreads];
  if (list.is_skipped()) return;
  int64_t chunk = list.chunks - 1 - blockIdx.x;
  for (int which = list.count - 1; which >= 0; --which) {
    const AdamItem &item = list.items[which];
    if (chunk < item.first_chunk) continue;
    const AdamLayout layout = list.layout(item);
    const AdamStep &step = share_step(list, which, list.steps);
    for (; chunk >= item.first_chunk; chunk -= gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        const AdamPack pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        AdamValues values = {};
        if (n > 0) pack.compute(true, values);
        pack.store(values);
      });
    }
  }
}

/* Of a list without a tensor's scale. */
[[maybe_unused]] static __global__ void finish_adam_kernel(const __grid_constant__ AdamList list) {
  if (list.is_skipped()) return;
  const int i = static_cast<int>(threadIdx.x);
  if (i < list.count) *list.items[i].step = next_step(*list.items[i].step);
}

}  // namespace octavo::cuda
