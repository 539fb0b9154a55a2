/* kernels/cuda/device/quantize_tensor.cuh: quantize with one scale for the tensor.
 *
 * Given scales: one launch that reads once. Current scaling: a launch that leaves the amax of every
 * block in the workspace, and a launch in which each block takes the maximum of those and derives
 * the scale for itself; so nothing has to be cleared before and the scale never leaves the device.
 */
#pragma once

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/tile.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

/* Where the scale of a call comes from; addresses are the device's. */
struct TensorScale {
  const float *given;   /* null: 1 */
  const float *counter; /* null: rule decides */
  float window;
  float format_max;
  float eps;
  uint32_t rule;
  const Stats *parts; /* of measure_kernel; null where it did not run */
  int part_count;

  __device__ bool is_given() const {
    return rule == OCTAVO_RULE_GIVEN || (counter != nullptr && *counter >= window);
  }
};

struct Accumulators {
  float *amax;
  float *nonfinite;
};

/* The first launch. Without `parts` the statistics go to the call's accumulators. */
template <typename Source, int kWidth>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(Source source, TensorScale scale, Stats *parts, Accumulators into) {
  __shared__ Stats shared[kWarps];
  if (parts != nullptr && scale.is_given()) return; /* nobody will look */
  source.prepare();
  Stats stats = {};
  for (int64_t row = first_row(); row < source.rows; row += row_step()) {
    for (int64_t col = first_index() * kWidth; col < source.cols; col += index_step() * kWidth) {
      Patch<Source, kWidth, 1> patch;
      patch.load(source, row, col);
      float values[kWidth];
      patch.values(source, 0, values);
      stats.merge(stats_of(values));
    }
  }
  stats = merge_block(stats, shared);
  if (thread_of_block() != 0) return;
  if (parts != nullptr) {
    parts[block_of_grid()] = stats;
  } else {
    publish(stats, into.amax, into.nonfinite);
  }
}

/* The scale of the call, the same in every thread of every block. */
__device__ inline float scale_of_call(const TensorScale &s, Stats (&shared)[kWarps]) {
  const float kept = s.given == nullptr ? 1.0f : *s.given;
  if (s.is_given()) return kept;
  Stats stats = {};
  for (int i = static_cast<int>(thread_of_block()); i < s.part_count; i += kThreads)
    stats.merge(s.parts[i]);
  const float amax = bits_float(merge_block(stats, shared).amax_bits);
  __syncthreads();
  return scale_by_rule(s.rule, amax < s.eps ? s.eps : amax, kept, s.format_max, 0);
}

template <typename Out>
struct TensorOutputs {
  Target<Out> out;
  Target<Out> out_t;
  float *out_scale_inv;
  float *out_t_scale_inv;
  bool keeps_positive;
};

template <typename Out>
__device__ void store_scale_inv(const TensorOutputs<Out> &to, float scale) {
  if (to.out_scale_inv != nullptr) *to.out_scale_inv = 1.0f / scale;
  if (to.out_t_scale_inv != nullptr) *to.out_t_scale_inv = 1.0f / scale;
}

/* The one scale of a call, as casts need it. */
struct TensorCast {
  float scale;
  bool keeps_positive;
  float least; /* 0; NaN where every value needs a look of its own */

  __device__ TensorCast(float s, bool keeps)
      : scale(s),
        keeps_positive(keeps),
        least(keeps || !is_plain_scale(s) ? bits_float(kQuietNanBits) : 0.0f) {}
};

/* The same, one element after the other; rare. Gives what the values are. */
template <typename Out, typename Source, int kRows>
__device__ __forceinline__ Stats cast_one_by_one(const Source &source, const TensorCast &cast,
                                                 int64_t row, int64_t col,
                                                 Codes<Out, kWide> (&codes)[kRows]) {
  Stats stats = {};
#pragma unroll 1
  for (int r = 0; r < kRows; ++r) {
    Codes<Out, kWide> of_row = {};
    const int count = row + r < source.rows && col < source.cols ? kWide : 0;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const float value = source.value(row + r, col + k);
      stats.add(value);
      of_row.push(code_of<Out>(value, cast.scale, cast.keeps_positive));
    }
#pragma unroll
    for (int i = 1; i < kRows; ++i) codes[i - 1] = codes[i]; /* registers have no index */
    codes[kRows - 1] = of_row;
  }
  return stats;
}

/* Casts a patch and stores it to out, where there is one. A NaN or the matrix's edge sends all of
 * it to the rare branch; Inf does not, so nonfinite is complete only when settled. */
template <typename Out, typename Source, int kRows>
__device__ __forceinline__ void cast_patch(const Source &source, const Target<Out> &out,
                                           const TensorCast &cast, int64_t row, int64_t col,
                                           Stats *stats, Codes<Out, kWide> (&codes)[kRows]) {
  float most = bits_float(kQuietNanBits);
  if (row + kRows <= source.rows && col < source.cols) {
    Patch<Source, kWide, kRows> patch;
    patch.load_whole(source, row, col);
    most = cast.least;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float values[kWide];
      patch.values(source, r, values);
#pragma unroll
      for (const float v : values) most = larger_magnitude(most, v);
      codes[r] = cast_numbers<Out>(values, OneScale{cast.scale});
    }
  }
  if (is_nan(most)) {
    stats->merge(cast_one_by_one<Out>(source, cast, row, col, codes));
  } else if (float_bits(most) > stats->amax_bits) {
    stats->amax_bits = float_bits(most);
  }
  if (out.data != nullptr) out.store(row, col, codes);
}

template <typename Out, typename Source, int kRows>
__device__ __forceinline__ void cast_patch(const Source &source, const Target<Out> &out,
                                           const TensorCast &cast, int64_t row, int64_t col,
                                           Stats *stats, Codes<Out, kQuad> (&codes)[kRows]) {
  Patch<Source, kQuad, kRows> patch;
  patch.load(source, row, col);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    stats->merge(stats_of(patch.packs[r]));
    codes[r] = cast_quad<Out>(patch.packs[r], patch.counts[r], cast.scale, cast.keeps_positive);
  }
  if (out.data != nullptr) out.store(row, col, codes);
}

/* Infinity is its own amax. */
__device__ inline Stats settled(Stats stats) {
  if (stats.amax_bits == kInfinityBits) stats.nonfinite = 1;
  return stats;
}

/* The second launch without out_t. */
template <typename Source, typename Out, int kWidth>
__global__ void __launch_bounds__(kThreads)
    cast_rows_kernel(Source source, TensorScale s, TensorOutputs<Out> to, Accumulators into) {
  __shared__ Stats shared[kWarps];
  source.prepare();
  const TensorCast cast(scale_of_call(s, shared), to.keeps_positive);
  Stats stats = {};
  for (int64_t row = first_row(); row < to.out.rows; row += row_step()) {
    for (int64_t col = first_index() * kWidth; col < to.out.cols; col += index_step() * kWidth) {
      Codes<Out, kWidth> codes[1];
      cast_patch(source, to.out, cast, row, col, &stats, codes);
    }
  }
  stats = merge_block(settled(stats), shared);
  if (thread_of_block() != 0) return;
  publish(stats, into.amax, into.nonfinite);
  if (block_of_grid() == 0) store_scale_inv(to, cast.scale);
}

/* The second launch with out_t: tile after tile, also over padding. */
template <typename Source, typename Out, int kWidth>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(Source source, TensorScale s, TensorOutputs<Out> to, Accumulators into) {
  __shared__ Stats shared[kWarps];
  __shared__ TurnedTile<Out> turned;
  source.prepare();
  const TensorCast cast(scale_of_call(s, shared), to.keeps_positive);
  const int64_t first_row = row_tile() * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  const PatchPlace<kWidth> place;
  Stats stats = {};
#pragma unroll 1
  for (int step = 0; step < kTile; step += place.kStepRows) {
    Codes<Out, kWidth> codes[kPatchRows];
    cast_patch(source, to.out, cast, first_row + step + place.row, first_col + place.col, &stats,
               codes);
    turned.put(step + place.row, place.col, codes);
  }
  stats = merge_block(settled(stats), shared); /* a barrier, after which the tile is complete */
  turned.template store<kWidth>(to.out_t, first_row, first_col);
  if (threadIdx.x != 0) return;
  publish(stats, into.amax, into.nonfinite);
  if (blockIdx.x == 0 && row_tile() == 0) store_scale_inv(to, cast.scale);
}

}  // namespace octavo::cuda
