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

/* The largest magnitude of what is stored with one scale, without that scale. */
struct StoredPeak {
  HalfPeak halves; /* of packs that are whole */
  Stats others;
  uint32_t signs;

  __device__ __forceinline__ void add(uint32_t dtype, const RawPack &raw, int n) {
    if (n == kPack && dtype == OCTAVO_F16) {
#pragma unroll
      for (int i = 0; i < kWords<F16, kPack>; ++i) add_halves(raw.word(i));
    } else if (n == kPack && dtype == OCTAVO_E4M3FN) {
#pragma unroll
      for (int i = 0; i < kWords<E4m3, kPack>; ++i) {
        add_halves(halves_of(E4m3{}, raw.word(i)));
        add_halves(halves_of(E4m3{}, raw.word(i) >> 16));
      }
    } else {
      float values[kPack];
      decode_pack(dtype, raw, values);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        if (i >= n) continue;
        others.add(values[i]);
        signs |= static_cast<uint32_t>(float_bits(values[i])) & 0x80000000u;
      }
    }
  }
  __device__ __forceinline__ void add_halves(uint32_t pair) {
    halves.add(pair);
    signs |= pair & 0x80008000u;
  }

  /* With the scale; a second moment with a sign is irregular, too. */
  __device__ Stats stats(int which, float scale_inv) const {
    Stats s = {0, others.nonfinite | halves.has_nan() | (which == kExpAvgSq && signs != 0 ? 1 : 0)};
    s.add(larger(halves.largest(), bits_float(others.amax_bits)) * scale_inv);
    return s;
  }
};

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

/* The largest number of a chunk's codes, of which a thread takes 16 at once. */
__device__ __forceinline__ void add_codes(const AdamItem &item, int64_t chunk, HalfPeak *peak) {
  constexpr int kCodes = 2 * kPack;
  static_assert(kChunk == int64_t{kThreads} * kCodes);
  const int64_t first = (chunk - item.first_chunk) * kChunk + threadIdx.x * kCodes;
  const char *at = static_cast<const char *>(item.data[kGradient]) + first;
  RawPack raw = {};
  if (first + kCodes <= item.count)
    raw = load_pack(at, 2);
  else if (first < item.count)
    raw = load_pack(at, 1);
#pragma unroll
  for (int i = 0; i < kPackWords; ++i) {
    peak->add(halves_of(E4m3{}, raw.word(i)));
    peak->add(halves_of(E4m3{}, raw.word(i) >> 16));
  }
}

template <typename Items>
__global__ void __launch_bounds__(kThreads, kAdamBlocks<AnyItems, AdamRounding::kAny>)
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
    if (Items::kAreKnown &&
        !(unknown.is[kWeight] || unknown.is[kExpAvg] || unknown.is[kExpAvgSq])) {
      HalfPeak peak = {};
#pragma unroll 4
      for (; chunk < end; chunk += gridDim.x) add_codes(item, chunk, &peak);
      stats[kGradient].add(peak.largest());
    }
    for (; chunk < end; chunk += gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        if (n == 0) return;
        const AdamPack<> pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        for (int k = 0; k <= kAdamTensors; ++k) {
          if (!unknown.is[k]) continue;
          float values[kPack];
          decode_pack(pack.dtype(k), pack.load(k), values);
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
    set_scales(list, item, layout, {bounds.weight, bounds.exp_avg, bounds.exp_avg_sq}, &step);
    /* The third launch raises them. */
    for (int k = 0; k < OCTAVO_AMAX_COUNT; ++k) item.amax[k] = 0.0f;
  }
  list.steps[which] = step;
  *item.step = next_step(*item.step);
}

template <typename Items, AdamRounding kRounding>
__global__ void __launch_bounds__(kThreads, kAdamBlocks<Items, AdamRounding::kAny>)
    pass_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stats shared[kWarps];
  __shared__ Stage stages[kThreads];
  if (list.is_skipped()) return;
  int64_t chunk = list.chunks - 1 - blockIdx.x;
  for (int which = list.count - 1; which >= 0; --which) {
    const AdamItem &item = list.items[which];
    if (chunk < item.first_chunk) continue;
    const AdamLayout layout = list.layout<Items>(item);
    const AdamStep &step = share_step(list, which, list.steps);
    StoredPeak peaks[kAdamTensors] = {};
    for (; chunk >= item.first_chunk; chunk -= gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        if (Items::kAreKnown && n == 0) return;
        const AdamPack<Items> pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        AdamValues values = {};
        float old_exp_avg[kPack] = {};
        if (pack.count() > 0)
          pack.template compute<true>(true, values,
                                      kRounding == AdamRounding::kNearest ? nullptr : old_exp_avg);
        pack.template store<kRounding>(values, old_exp_avg, [&](int k, const RawPack &raw) {
          if (layout.is_scaled[k]) peaks[k].add(pack.dtype(k), raw, pack.count());
        });
      });
    }
    if (item.amax == nullptr) continue;
    for (int k = 0; k < kAdamTensors; ++k) {
      const Stats all = merge_block(peaks[k].stats(k, step.new_scale_inv[k]), shared);
      if (threadIdx.x == 0) publish(all, item.amax + k, item.amax + OCTAVO_AMAX_IRREGULAR);
      __syncthreads();
    }
  }
}

}  // namespace octavo::cuda
