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

#include "kernels/cuda/device/adam_pack.cuh"

namespace octavo::cuda {

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

template <typename Items>
__global__ void __launch_bounds__(kThreads, kAdamBlocks<Items, AdamRounding::kNearest>)
    measure_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stats shared[kWarps];
  __shared__ Stage stages[kThreads];
  if (list.is_skipped()) return;
  int64_t chunk = blockIdx.x;
  for (int which = 0; which < list.count; ++which) {
    const int64_t end = list.end_chunk(which);
    if (chunk >= end) continue;
    const AdamItem &item = list.items[which];
    const AdamLayout layout = list.layout<Items>(item);
    const AdamStep &step = share_step(list, which, nullptr);
    const int64_t part = chunk; /* below the item's first chunk plus gridDim.x: the block's own */
    float largest[kAdamTensors] = {};
    for (; chunk < end; chunk += gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        if (n == 0) return;
        AdamValues values;
        const AdamPack<Items> pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        pack.compute(false, values);
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          for (int k = 0; k < kAdamTensors; ++k) {
            if (i < pack.count()) largest[k] = larger(largest[k], absolute(values[k][i]));
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

/* Merges what the blocks of the launch before left in `parts` of an item. Every thread of the block
 * calls it; the first one has the result. */
template <int kCount>
__device__ inline void merge_parts(const AdamList &list, int which, const int32_t (*parts)[kCount],
                                   Stats (&stats)[kCount], Stats (&shared)[kWarps]) {
  const int64_t first = list.items[which].first_chunk;
  const int64_t chunks = list.end_chunk(which) - first;
  const int64_t count = chunks < list.blocks ? chunks : list.blocks;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    for (int k = 0; k < kCount; ++k) stats[k].merge({parts[first + i][k], 0});
  }
  for (int k = 0; k < kCount; ++k) {
    stats[k] = merge_block(stats[k], shared);
    __syncthreads();
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
  Stats stats[kAdamTensors] = {};
  merge_parts(list, which, list.parts, stats, shared);
  if (threadIdx.x != 0) return;
  AdamStep step = adam_step_of(list, item);
  float largest[kAdamTensors];
  for (int k = 0; k < kAdamTensors; ++k) largest[k] = bits_float(stats[k].amax_bits);
  set_scales(list, item, layout, largest, &step);
  list.steps[which] = step;
  *item.step = next_step(*item.step);
}

template <typename Items, AdamRounding kRounding>
__global__ void __launch_bounds__(kThreads, kAdamBlocks<Items, kRounding>)
    write_adam_kernel(const __grid_constant__ AdamList list) {
  __shared__ Stage stages[kThreads];
  if (list.is_skipped()) return;
  int64_t chunk = list.chunks - 1 - blockIdx.x;
  for (int which = list.count - 1; which >= 0; --which) {
    const AdamItem &item = list.items[which];
    if (chunk < item.first_chunk) continue;
    const AdamLayout layout = list.layout<Items>(item);
    const AdamStep &step = share_step(list, which, list.steps);
    for (; chunk >= item.first_chunk; chunk -= gridDim.x) {
      for_packs(item, chunk, [&](int64_t first, int n) {
        if (Items::kAreKnown && n == 0) return;
        const AdamPack<Items> pack = {list, item, step, layout, stages + threadIdx.x, first, n};
        AdamValues values = {};
        float old_exp_avg[kPack] = {};
        if (pack.count() > 0)
          pack.compute(true, values, kRounding == AdamRounding::kNearest ? nullptr : old_exp_avg);
        pack.template store<kRounding>(values, old_exp_avg);
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
