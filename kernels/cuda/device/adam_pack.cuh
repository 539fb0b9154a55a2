/* kernels/cuda/device/adam_pack.cuh: what a launch of adam.cuh knows of its items, and the step of
 * eight elements of one of them.
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
constexpr int kAdamItems = 32;  /* of one launch: their descriptions are its arguments */
constexpr int kAdamBlocks = 3;  /* of a multiprocessor at once: 80 registers a thread */
constexpr int kRoundBlocks = 2; /* the same where codes are rounded in another way: 128 */
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

  /* How a tensor is rounded; none in f32 is. */
  __device__ __forceinline__ PackRounding rounding(int which, const float *old) const {
    /* One pointer whatever the rounding: chosen between two, the old values would leave their
     * registers. */
    const bool is_rounded = item.dtype[which] != OCTAVO_F32;
    return {is_rounded ? list.rounding[which] : uint32_t{OCTAVO_ROUND_NEAREST_EVEN},
            random_key(item.key, step.number, static_cast<uint32_t>(which)), old,
            decay_limit(step.factors.beta1)};
  }

  __device__ RawPack load(int which) const {
    if (is_whole()) return load_pack(at(which), item.bytes(which));
    return load_each(item.data[which], item.bytes(which), item.stride[which], walk(), n, stage);
  }

  /* old_exp_avg takes the old values of one; it may be null. kLimits: see adam_element. */
  template <bool kLimits = false>
  __device__ __forceinline__ void compute(bool is_stored, AdamValues &values,
                                          float *old_exp_avg = nullptr) const {
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
      const AdamElement next = adam_element<kLimits>(step.factors, old, g);
      if (old_exp_avg != nullptr) old_exp_avg[i] = old.exp_avg;
      values[kWeight][i] = next.weight;
      values[kExpAvg][i] = next.exp_avg;
      values[kExpAvgSq][i] = next.exp_avg_sq;
      if (!leaves_out) continue;
      const AdamMoments undecayed = adam_moments(step.factors, old, g);
      if (layout.is_undecayed[kExpAvg]) values[kExpAvg][i] = undecayed.exp_avg;
      if (layout.is_undecayed[kExpAvgSq]) values[kExpAvgSq][i] = undecayed.exp_avg_sq;
    }
  }

  __device__ __forceinline__ RawPack encode(int which, const float (&values)[kPack],
                                            const PackRounding &rounding) const {
    const bool is_raised = which == kExpAvgSq && list.keeps_positive;
    if (layout.is_blocks[which])
      return encode_state(scales(which), first, values, n, is_raised, rounding, stage);
    const uint32_t dtype = item.dtype[which];
    const bool is_scaled = layout.is_scaled[which];
    float scaled[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) scaled[i] = values[i] * step.new_scale[which];
    RawPack raw = {};
    if (rounding.is_stochastic())
      encode_random_pack(dtype, is_scaled, scaled, rounding.key, first, &raw);
    else
      encode_pack(dtype, is_scaled, scaled, &raw);
    if (rounding.shrinks())
      shrink_pack(dtype, 1.0f / step.new_scale[which], values, rounding, &raw);
    if (is_raised && (is_scaled || item.bytes(which) == 1)) raise_pack(dtype, values, &raw);
    return raw;
  }
  struct Nothing {
    __device__ void operator()(int, const RawPack &) const {}
  };
  /* Every lane of a warp calls it. after(which, raw) follows the codes of each tensor. */
  template <bool kRounds, typename After = Nothing>
  __device__ __forceinline__ void store(const AdamValues &values, const float *old_exp_avg,
                                        After &&after = {}) const {
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) {
      const RawPack raw = encode(k, values[k], kRounds ? rounding(k, old_exp_avg) : PackRounding{});
      after(k, raw);
      if (is_whole())
        store_pack(at(k), item.bytes(k), raw);
      else if (n > 0)
        store_each(item.data[k], item.bytes(k), item.stride[k], walk(), n, raw, stage);
    }
  }
};

}  // namespace octavo::cuda
