/* kernels/cuda/device/adam_pack.cuh: the Adam step of eight elements of an item. */
#pragma once

#include "kernels/cuda/device/adam_list.cuh"
#include "kernels/cuda/device/adam_ratio.cuh"

namespace octavo::cuda {

using AdamValues = float[kAdamTensors][kPack];

/* The old values of a pack whose first n elements exist, then the new ones. `is_stored`: as they
 * are stored, with moments that leave out the decay. */
template <typename Items = AnyItems>
struct AdamPack {
  const AdamList &list;
  const AdamItem &item;
  const AdamStep &step;
  const AdamLayout &layout;
  Stage *stage;
  int64_t first;
  int n;

  __device__ __forceinline__ uint32_t dtype(int which) const {
    if constexpr (Items::kAreKnown) return Items::dtype(which);
    return item.dtype[which];
  }
  __device__ __forceinline__ int bytes(int which) const {
    return static_cast<int>(OCTAVO_DTYPE_BITS(dtype(which)) / 8);
  }
  /* Elements, where there are any. */
  __device__ __forceinline__ int count() const { return Items::kAreKnown ? kPack : n; }
  __device__ bool is_whole() const {
    return Items::kAreKnown || (item.is_dense != 0 && n == kPack);
  }
  __device__ PackWalk walk() const { return walk_from(first, item.cols, item.per_cols); }
  __device__ char *at(int which) const {
    return static_cast<char *>(item.data[which]) + first * bytes(which);
  }
  __device__ StateScales scales(int which) const {
    return {item.scale_inv[which], list.state_granularity};
  }

  /* How a tensor is rounded; none in f32 is. */
  template <AdamRounding kRounding>
  __device__ __forceinline__ PackRounding rounding(int which, const float *old) const {
    constexpr bool kIsAny = kRounding == AdamRounding::kAny;
    constexpr uint32_t kNone = OCTAVO_ROUND_NEAREST_EVEN;
    if (kRounding == AdamRounding::kNearest || (!kIsAny && which != kExpAvg)) return {};
    /* One pointer whatever the rounding: chosen between two, the old values would leave their
     * registers. */
    const uint32_t how = kIsAny ? list.rounding[which] : uint32_t{OCTAVO_ROUND_SHRINKING};
    return {dtype(which) != OCTAVO_F32 ? how : kNone,
            kIsAny ? random_key(item.key, step.number, static_cast<uint32_t>(which)) : RandomKey{},
            old, decay_limit(step.factors.beta1)};
  }

  __device__ RawPack load(int which) const {
    if (is_whole()) return load_pack(at(which), bytes(which));
    return load_each(item.data[which], bytes(which), item.stride[which], walk(), n, stage);
  }

  /* old_exp_avg takes the old values of one; it may be null. kLimits: see adam_element. */
  template <bool kLimits = false>
  __device__ __forceinline__ void compute(bool is_stored, AdamValues &values,
                                          float *old_exp_avg = nullptr) const {
    RawPack raw[kAdamTensors + 1];
    if (is_whole()) {
#pragma unroll
      for (int k = 0; k <= kAdamTensors; ++k) raw[k] = load_pack(at(k), bytes(k));
    } else {
      const PackWalk from = walk();
#pragma unroll
      for (int k = 0; k <= kAdamTensors; ++k)
        raw[k] = load_each(item.data[k], bytes(k), item.stride[k], from, n, stage);
    }
    float gradient[kPack];
    decode_pack(dtype(kGradient), raw[kGradient], gradient);
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) {
      if (layout.is_blocks[k])
        decode_state(scales(k), first, raw[k], stage, values[k]);
      else
        decode_pack(dtype(k), raw[k], values[k]);
    }
    AdamFactors factors = step.factors;
    if constexpr (Items::kAreKnown) factors.l2 = 0.0f;
    const bool leaves_out = is_stored && factors.l2 != 0.0f;
    AdamValues decayed;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float g = gradient[i] * step.gradient_factor * step.gradient_scale;
      const AdamElement old = {values[kWeight][i] * step.old_scale_inv[kWeight],
                               values[kExpAvg][i] * step.old_scale_inv[kExpAvg],
                               values[kExpAvgSq][i] * step.old_scale_inv[kExpAvgSq]};
      if (old_exp_avg != nullptr) old_exp_avg[i] = old.exp_avg;
      const AdamDecayed start = adam_decayed(factors, old.weight, g);
      const AdamMoments moments = adam_moments(factors, old, start.gradient);
      decayed[kWeight][i] = start.weight;
      values[kExpAvg][i] = decayed[kExpAvg][i] = moments.exp_avg;
      values[kExpAvgSq][i] = decayed[kExpAvgSq][i] = moments.exp_avg_sq;
      if (!leaves_out) continue;
      const AdamMoments undecayed = adam_moments(factors, old, g);
      if (layout.is_undecayed[kExpAvg]) values[kExpAvg][i] = undecayed.exp_avg;
      if (layout.is_undecayed[kExpAvgSq]) values[kExpAvgSq][i] = undecayed.exp_avg_sq;
    }
    float ratios[kPack];
    adam_ratios(factors, decayed[kExpAvg], decayed[kExpAvgSq], ratios);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      values[kWeight][i] = adam_weight<kLimits>(factors, decayed[kWeight][i], ratios[i]);
  }

  __device__ __forceinline__ RawPack encode(int which, const float (&values)[kPack],
                                            const PackRounding &rounding) const {
    const bool is_raised = which == kExpAvgSq && list.keeps_positive;
    if (layout.is_blocks[which])
      return encode_state(scales(which), first, values, n, is_raised, rounding, stage);
    const bool is_scaled = layout.is_scaled[which];
    float scaled[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) scaled[i] = values[i] * step.new_scale[which];
    RawPack raw = {};
    if (rounding.is_stochastic())
      encode_random_pack(dtype(which), is_scaled, scaled, rounding.key, first, &raw);
    else
      encode_pack(dtype(which), is_scaled, scaled, &raw);
    if (rounding.shrinks())
      shrink_pack(dtype(which), step.new_scale_inv[which], values, rounding, &raw);
    if (is_raised && (is_scaled || bytes(which) == 1)) raise_pack(dtype(which), values, &raw);
    return raw;
  }
  struct Nothing {
    __device__ void operator()(int, const RawPack &) const {}
  };
  /* Every lane of a warp calls it. after(which, raw) follows the codes of each tensor. */
  template <AdamRounding kRounding, typename After = Nothing>
  __device__ __forceinline__ void store(const AdamValues &values, const float *old_exp_avg,
                                        After &&after = {}) const {
#pragma unroll
    for (int k = 0; k < kAdamTensors; ++k) {
      const RawPack raw = encode(k, values[k], rounding<kRounding>(k, old_exp_avg));
      after(k, raw);
      if (is_whole())
        store_pack(at(k), bytes(k), raw);
      else if (n > 0)
        store_each(item.data[k], bytes(k), item.stride[k], walk(), n, raw, stage);
    }
  }
};

}  // namespace octavo::cuda
