/* kernels/cuda/device/quantize_rows.cuh: quantize with a scale for each row.
 *
 * Without out_t one launch: whole warps take a row, measure and cast it. With out_t,
 * whose rows are the input's columns, all must be measured first: until the last launch what is
 * where scales will be is an amax.
 */
#pragma once

#include "kernels/cuda/device/tile_scales.cuh"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

constexpr int kLogOfTile = 7;

struct RowRule {
  uint32_t rule;
  float format_max;
  float eps;
  bool keeps_positive;

  __device__ float scale(float amax) const {
    return scale_by_rule(rule, amax < eps ? eps : amax, 1.0f, format_max, 0);
  }
};

/* Scales of rows, `stride` floats apart; data is null where the call has none. */
struct RowScales {
  float *data;
  int64_t stride;
  int64_t rows;

  __device__ float &at(int64_t row) const { return data[row * stride]; }
};

/* Of the threads along x, whole warps, that have one row; they get the answer. Two barriers. */
__device__ inline Stats merge_row(Stats stats, Stats (&shared)[kWarps]) {
  stats = merge_warp(stats);
  const unsigned warp = thread_of_block() / kWarp;
  if (threadIdx.x % kWarp == 0) shared[warp] = stats;
  __syncthreads();
  const unsigned warps = blockDim.x / kWarp;
  const unsigned first = warp & ~(warps - 1);
  stats = shared[first];
  for (unsigned i = 1; i < warps; ++i) stats.merge(shared[first + i]);
  __syncthreads();
  return stats;
}

/* Rows of out, padding included, without out_t: blockDim.x threads, a power of two, have a row. */
template <typename Source, typename Out, int kWidth>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(Source source, RowRule rule, Target<Out> out, RowScales scales,
                         float *amax, float *nonfinite) {
  __shared__ Stats shared[kWarps];
  source.prepare();
  Stats all = {};
  const int64_t step = static_cast<int64_t>(blockDim.x) * kWidth;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * kWidth;
  for (int64_t rows = static_cast<int64_t>(blockIdx.x) * blockDim.y; rows < out.rows;
       rows += static_cast<int64_t>(gridDim.x) * blockDim.y) {
    const int64_t row = rows + threadIdx.y;
    Stats stats = {};
    Patch<Source, kWidth, 1> patch;
    float values[kWidth];
    for (int64_t col = begin; row < source.rows && col < source.cols; col += step) {
      patch.load(source, row, col);
      patch.values(source, 0, values);
      stats.merge(stats_of(values));
    }
    stats = merge_row(stats, shared);
    all.merge(stats);
    const float scale = rule.scale(bits_float(stats.amax_bits));
    const bool is_special = rule.keeps_positive || stats.nonfinite != 0 || !is_plain_scale(scale);
    for (int64_t col = begin; row < out.rows && col < out.cols; col += step) {
      Codes<Out, kWidth> codes[1];
      patch.load(source, row, col);
      cast_patch<Out, false>(source, row, col, patch, PatchScales{&scale, 0, 0}, is_special,
                             rule.keeps_positive, codes);
      out.store(row, col, codes);
    }
    if (threadIdx.x == 0 && row < out.rows) scales.at(row) = 1.0f / scale;
  }
  if (threadIdx.x == 0) publish(all, amax, nonfinite);
}

/* Before measuring: every scale is an amax of 0. */
[[maybe_unused]] static __global__ void clear_row_scales_kernel(RowScales out, RowScales out_t) {
  for (int64_t i = first_index(); i < out.rows; i += index_step()) out.at(i) = 0.0f;
  for (int64_t i = first_index(); i < out_t.rows; i += index_step()) out_t.at(i) = 0.0f;
}

/* Tile after tile; of every tile the amax of each row and column. */
template <typename Source, int kWidth>
__global__ void __launch_bounds__(kThreads)
    measure_rows_kernel(Source source, RowScales out, RowScales out_t, float *amax,
                        float *nonfinite) {
  __shared__ Stats shared[kWarps];
  __shared__ TileScales found;
  __shared__ ColumnParts cols;
  source.prepare();
  const TilePlace tile(kLogOfTile);
  Patch<Source, kWidth, kPatchRows> patch;
  const Stats stats = merge_block(measure_tile(source, tile, true, &patch, &found, &cols), shared);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) publish(stats, amax, nonfinite);
  if (thread >= kTile) return;
  if (out.data != nullptr && tile.row + thread < source.rows)
    publish({float_bits(found.of_rows[thread][0]), 0}, &out.at(tile.row + thread), nullptr);
  if (tile.col + thread < source.cols)
    publish({float_bits(cols.of(thread, 0, kTile)), 0}, &out_t.at(tile.col + thread), nullptr);
}

/* Tiles again, over the padding, too. */
template <typename Source, typename Out, int kWidth>
__global__ void __launch_bounds__(kThreads)
    cast_rows_and_cols_kernel(Source source, RowRule rule, Target<Out> out, RowScales scales,
                              Target<Out> out_t, RowScales scales_t) {
  __shared__ TileScales multipliers;
  __shared__ TurnedTile<Out> turned;
  source.prepare();
  const TilePlace tile(kLogOfTile);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) multipliers.is_special = rule.keeps_positive ? 1 : 0;
  __syncthreads();
  if (thread < kTile) {
    const bool exists = out.data != nullptr && tile.row + thread < source.rows;
    const float scale = exists ? rule.scale(scales.at(tile.row + thread)) : 1.0f;
    multipliers.of_rows[thread][0] = scale;
    multipliers.note(scale);
  } else {
    const int line = thread - kTile;
    const bool exists = tile.col + line < source.cols;
    const float scale = exists ? rule.scale(scales_t.at(tile.col + line)) : 1.0f;
    multipliers.of_cols[0][line] = scale;
    multipliers.note(scale);
  }
  __syncthreads();
  Patch<Source, kWidth, kPatchRows> patch;
  cast_tile<false>(source, tile, multipliers, multipliers.is_special != 0, rule.keeps_positive,
                   TileOutput<Out>{out, false}, TileOutput<Out>{out_t, false}, &patch, &turned);
}

/* After casting: amaxes become scales. Rows of padding have the amax of zeros, which is there. */
[[maybe_unused]] static __global__ void finish_row_scales_kernel(RowRule rule, RowScales out,
                                                                 RowScales out_t) {
  for (int64_t i = first_index(); i < out.rows; i += index_step())
    out.at(i) = 1.0f / rule.scale(out.at(i));
  for (int64_t i = first_index(); i < out_t.rows; i += index_step())
    out_t.at(i) = 1.0f / rule.scale(out_t.at(i));
}

}  // namespace octavo::cuda
