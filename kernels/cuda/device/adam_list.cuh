/* kernels/cuda/device/adam_list.cuh: what a launch of adam.cuh knows of its items, and what the
 * step of each has in common for all elements.
 */
#pragma once

#include "kernels/cuda/device/packs.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/states.cuh"
#include "kernels/format/adam.h"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

/* The tensors of an item; the step changes the first three. */
enum AdamTensor { kWeight = 0, kExpAvg = 1, kExpAvgSq = 2, kAdamTensors = 3, kGradient = 3 };
constexpr int64_t kTurn = int64_t{kThreads} * kPack; /* elements that a block takes at once */
constexpr int64_t kChunk = 2 * kTurn;
constexpr int kAdamItems = 32; /* of one launch: their descriptions are its arguments */
static_assert(kTurn % kStateBlock == 0);

struct AdamItem {
  void *data[kAdamTensors + 1];
  int64_t stride[kAdamTensors + 1];
  float *scale_inv[kAdamTensors + 1]; /* null: plain */
  float *amax;                        /* of adam_one_pass; null: none */
  int32_t *step;
  const float *hyper;
  int64_t count;
  int64_t cols;
  double per_cols; /* 1 / cols */
  int64_t first_chunk;
  uint64_t key; /* of stochastic roundings */
  uint32_t dtype[kAdamTensors + 1];
  uint32_t is_dense; /* and all addresses are multiples of 16 */
};

/* What is known of the items of a launch when its code is compiled: nothing, ... */
struct AnyItems {
  static constexpr bool kAreKnown = false;
};
/* ... or that all are as level O2 of msamp keeps them: these dtypes, dense and aligned packs
 * alone, a scale of the tensor for weight and moments, and decoupled decay. */
struct CodeItems {
  static constexpr bool kAreKnown = true;
  __device__ static constexpr uint32_t dtype(int which) {
    return which == kWeight || which == kExpAvgSq ? OCTAVO_F16 : OCTAVO_E4M3FN;
  }
};

/* How a launch rounds what it stores. */
enum class AdamRounding {
  kNearest,
  kShrinking, /* first moments; the others to nearest even */
  kAny
};

/* Blocks of a multiprocessor at once: with three of them 80 registers a thread, with two 128. */
template <typename Items, AdamRounding kRounding>
constexpr int kAdamBlocks = Items::kAreKnown || kRounding == AdamRounding::kNearest ? 3 : 2;

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
  float new_scale_inv[kAdamTensors];
  int32_t number; /* from 1 on: the item's own count is ahead of it once scales are made */
};

struct AdamList {
  AdamItem items[kAdamItems];
  int count;
  int blocks; /* of the launches over chunks */
  int64_t chunks;
  const float *skip;
  int32_t (*parts)[kAdamTensors];     /* amax bits; an item's are those from its first chunk on */
  int32_t (*peaks)[kAdamTensors + 1]; /* in place of parts, for adam_one_pass */
  AdamStep *steps; /* of every item; null: nothing of the list has such a scale */
  uint32_t rule;
  uint32_t decay_mode;
  uint32_t state_granularity;
  uint32_t rounding[kAdamTensors]; /* OCTAVO_ROUND_... */
  bool keeps_positive;

  __device__ bool is_skipped() const { return skip != nullptr && *skip != 0.0f; }
  template <typename Items = AnyItems>
  __device__ __forceinline__ AdamLayout layout(const AdamItem &item) const {
    if constexpr (Items::kAreKnown) return {{true, true, true}, {}, {}};
    AdamLayout l = {};
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

__device__ inline float largest_code(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? kMaxE4m3 : dtype == OCTAVO_E5M2 ? kMaxE5m2 : kMaxF16;
}

/* With new scales of 1. */
__device__ inline AdamStep adam_step_of(const AdamList &list, const AdamItem &item) {
  const AdamLayout layout = list.layout(item);
  const bool has_tensor_states = layout.is_scaled[kExpAvg] || layout.is_scaled[kExpAvgSq];
  AdamStep s;
  s.number = next_step(*item.step);
  s.factors = adam_factors(item.hyper, s.number, list.decay_mode != OCTAVO_DECAY_DECOUPLED,
                           has_tensor_states ? AdamBetas::kSingle : AdamBetas::kDecimal);
  s.gradient_factor = item.scale_inv[kGradient] == nullptr ? 1.0f : *item.scale_inv[kGradient];
  s.gradient_scale = item.hyper[OCTAVO_HYPER_GRAD_SCALE];
#pragma unroll
  for (int k = 0; k < kAdamTensors; ++k) {
    s.old_scale_inv[k] = layout.is_scaled[k] ? *item.scale_inv[k] : 1.0f;
    s.new_scale[k] = s.new_scale_inv[k] = 1.0f;
  }
  return s;
}

/* The new scales of an item whose tensors have these largest values, also where the caller keeps
 * them. */
__device__ inline void set_scales(const AdamList &list, const AdamItem &item,
                                  const AdamLayout &layout, const float (&largest)[kAdamTensors],
                                  AdamStep *step) {
#pragma unroll
  for (int k = 0; k < kAdamTensors; ++k) {
    if (!layout.is_scaled[k]) continue;
    step->new_scale[k] = scale_by_rule(list.rule, largest[k], 1.0f, largest_code(item.dtype[k]), 0);
    *item.scale_inv[k] = step->new_scale_inv[k] = 1.0f / step->new_scale[k];
  }
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

}  // namespace octavo::cuda
