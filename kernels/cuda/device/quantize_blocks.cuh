/* kernels/cuda/device/quantize_blocks.cuh: quantize with a scale for each block, in one launch.
 *
 * A block of threads takes a tile of 128 x 128, in which all blocks of values end, whether they
 * have 128 or 32 elements and run along rows, along columns or are squares: it finds the amax of
 * every block, makes scales of them, and casts.
 */
#pragma once

#include "kernels/cuda/device/tile_scales.cuh"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

/* One output, the codes of which have blocks. */
template <typename Out>
struct BlockOutput {
  TileOutput<Out> to;
  void *scales;
  int64_t scale_stride;

  __device__ bool has_squares() const { return to.exists() && to.is_square; }
  __device__ bool has_lines() const { return to.exists() && !to.is_square; }
};

template <typename Out>
struct BlockCall {
  BlockOutput<Out> out;
  BlockOutput<Out> out_t;
  uint32_t rule;
  float format_max;
  float eps;
  float largest;  /* of the input's dtype */
  int log_length; /* of a block: 7 or 5 */
  bool keeps_positive;
};

/* Stores the scale_inv at [row, col] of the output's scales, if it has such a block; gives the
 * scale. */
template <typename Out>
__device__ float store_block_scale(const BlockCall<Out> &c, const BlockOutput<Out> &to, int64_t row,
                                   int64_t col, float amax) {
  const BlockScale s = block_scale(c.rule, amax, c.format_max, c.eps, c.largest);
  if (row << (to.to.is_square ? c.log_length : 0) >= to.to.codes.rows) return s.scale;
  if (col << c.log_length >= to.to.codes.cols) return s.scale;
  const int64_t at = row * to.scale_stride + col;
  if (is_mx_rule(c.rule)) {
    static_cast<uint8_t *>(to.scales)[at] = s.code;
  } else {
    static_cast<float *>(to.scales)[at] = s.scale_inv;
  }
  return s.scale;
}

/* The scales of all squares of the tile, by a warp each, from the amaxes of its rows. */
template <typename Out>
__device__ void scale_squares(const BlockCall<Out> &c, const TilePlace &tile, TileScales *amax) {
  const int steps = tile.blocks();
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (int i = static_cast<int>(threadIdx.x / kWarp); i < steps * steps; i += kWarps) {
    const int r = i / steps;
    const int b = i % steps;
    Stats stats = {};
    for (int row = lane; row < tile.length(); row += static_cast<int>(kWarp))
      stats.merge({float_bits(amax->of_rows[r * tile.length() + row][b]), 0});
    const float of_square = bits_float(merge_warp(stats).amax_bits);
    if (lane != 0) continue;
    const int64_t row = (tile.row >> c.log_length) + r;
    const int64_t col = (tile.col >> c.log_length) + b;
    float scale = 1.0f;
    if (c.out.has_squares()) scale = store_block_scale(c, c.out, row, col, of_square);
    if (c.out_t.has_squares()) scale = store_block_scale(c, c.out_t, col, row, of_square);
    amax->of_squares[r][b] = scale;
    amax->note(scale);
  }
}

/* Those of blocks along rows and columns. */
template <typename Out>
__device__ void scale_lines(const BlockCall<Out> &c, const TilePlace &tile, const ColumnParts &cols,
                            TileScales *amax) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * tile.blocks(); i += kThreads) {
    const int line = i % kTile;
    const int b = i / kTile;
    if (c.out.has_lines()) {
      float &scale = amax->of_rows[line][b];
      scale = store_block_scale(c, c.out, tile.row + line, (tile.col >> c.log_length) + b, scale);
      amax->note(scale);
    }
    if (c.out_t.has_lines()) {
      float &scale = amax->of_cols[b][line];
      scale = store_block_scale(c, c.out_t, tile.col + line, (tile.row >> c.log_length) + b,
                                cols.of(line, b * tile.length(), tile.length()));
      amax->note(scale);
    }
  }
}

template <typename Source, typename Out, int kWidth>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks_kernel(Source source, BlockCall<Out> c, float *amax_target,
                           float *nonfinite_target) {
  __shared__ Stats shared[kWarps];
  __shared__ TileScales scales;
  __shared__ TileMemory<Out> memory;
  source.prepare();
  if (threadIdx.x == 0) scales.is_special = c.keeps_positive ? 1 : 0;
  const TilePlace tile(c.log_length);
  Patch<Source, kWidth, kPatchRows> patch;
  const Stats stats =
      measure_tile(source, tile, c.out_t.has_lines(), &patch, &scales, &memory.cols);
  const Stats all = merge_block(stats, shared); /* a barrier, after which the amaxes are complete */
  if (threadIdx.x == 0) publish(all, amax_target, nonfinite_target);
  if (c.out.has_squares() || c.out_t.has_squares()) scale_squares(c, tile, &scales);
  if (c.out_t.has_squares() && c.out.has_lines()) __syncthreads(); /* of_rows was read */
  scale_lines(c, tile, memory.cols, &scales);
  __syncthreads();
  cast_tile<true>(source, tile, scales, scales.is_special != 0 || stats.nonfinite != 0,
                  c.keeps_positive, c.out.to, c.out_t.to, &patch, &memory.turned);
}

}  // namespace octavo::cuda
