/* kernels/cuda/device/quantize_blocks.cuh: quantize with a scale for each block, in one launch.
 *
 * A block of threads takes a tile of 128 x 128, in which all blocks of values end, whether they
 * have 128 or 32 elements and run along rows, along columns or are squares. It reads the tile
 * twice, the second time from the cache: first for the amax of every block, then to cast.
 */
#pragma once

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/target.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

constexpr int kBlockTile = 128;
constexpr int kMostBlocks = 4; /* of 32 elements along a side of the tile */

/* One output, the codes of which have blocks. */
template <typename Out>
struct BlockOutput {
  Target<Out> codes;
  void *scales;
  int64_t scale_stride;
  bool is_square;

  __device__ bool exists() const { return codes.data != nullptr; }
};

template <typename Out>
struct BlockCall {
  BlockOutput<Out> out;
  BlockOutput<Out> out_t;
  uint32_t rule;
  float format_max;
  float eps;
  float largest; /* of the input's dtype */
  int length;    /* of a block: 128 or 32 */
  bool keeps_positive;
};

/* Bits of the amax of every block of a tile. */
struct TileAmax {
  int32_t of_rows[kBlockTile][kMostBlocks]; /* blocks along rows */
  int32_t of_cols[kMostBlocks][kBlockTile]; /* blocks along columns */
  int32_t of_squares[kMostBlocks][kMostBlocks];
};

/* Stores the scale_inv at [row, col] of the output's scales, if it has such a block; gives the
 * scale. */
template <typename Out>
__device__ float store_block_scale(const BlockCall<Out> &c, const BlockOutput<Out> &to, int64_t row,
                                   int64_t col, int32_t amax_bits) {
  const BlockScale s = block_scale(c.rule, bits_float(amax_bits), c.format_max, c.eps, c.largest);
  const int64_t high = to.is_square ? c.length : 1;
  if (row >= (to.codes.rows + high - 1) / high) return s.scale;
  if (col >= (to.codes.cols + c.length - 1) / c.length) return s.scale;
  const int64_t at = row * to.scale_stride + col;
  if (is_mx_rule(c.rule)) {
    static_cast<uint8_t *>(to.scales)[at] = s.code;
  } else {
    static_cast<float *>(to.scales)[at] = s.scale_inv;
  }
  return s.scale;
}

template <typename Source, typename Out>
__device__ Stats measure_tile(const Source &source, int64_t first_row, int64_t first_col,
                              int length, TileAmax *amax) {
  Stats stats = {};
  for (int i = static_cast<int>(threadIdx.x); i < kBlockTile * kBlockTile / kQuad; i += kThreads) {
    const int r = i / (kBlockTile / kQuad);
    const int c = i % (kBlockTile / kQuad) * kQuad;
    float values[kQuad];
    const int count = source.quad(first_row + r, first_col + c, values);
    Stats of_quad = {};
    for (int k = 0; k < count; ++k) {
      Stats of_value = {};
      of_value.add(values[k]);
      if (of_value.amax_bits > 0) atomicMax(&amax->of_cols[r / length][c + k], of_value.amax_bits);
      of_quad.merge(of_value);
    }
    if (of_quad.amax_bits > 0) atomicMax(&amax->of_rows[r][c / length], of_quad.amax_bits);
    stats.merge(of_quad);
  }
  return stats;
}

/* The scales that multiply before the cast, of all blocks of the tile; they take the place of the
 * amaxes that they are made of. */
template <typename Out>
__device__ void scale_tile(const BlockCall<Out> &c, int64_t first_row, int64_t first_col,
                           TileAmax *amax) {
  const int steps = kBlockTile / c.length;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row_step = first_row / c.length;
  const int64_t col_step = first_col / c.length;
  if (thread < steps * steps) {
    const int r = thread / steps;
    const int b = thread % steps;
    int32_t bits = 0;
    for (int i = 0; i < c.length; ++i) {
      const int32_t of_row = amax->of_rows[r * c.length + i][b];
      if (of_row > bits) bits = of_row;
    }
    float scale = 0.0f;
    if (c.out.exists() && c.out.is_square)
      scale = store_block_scale(c, c.out, row_step + r, col_step + b, bits);
    if (c.out_t.exists() && c.out_t.is_square)
      scale = store_block_scale(c, c.out_t, col_step + b, row_step + r, bits);
    amax->of_squares[r][b] = float_bits(scale);
  }
  __syncthreads(); /* the amaxes of rows have been read */
  for (int i = thread; i < kBlockTile * steps; i += kThreads) {
    const int r = i / steps;
    const int b = i % steps;
    if (c.out.exists() && !c.out.is_square)
      amax->of_rows[r][b] =
          float_bits(store_block_scale(c, c.out, first_row + r, col_step + b, amax->of_rows[r][b]));
    if (c.out_t.exists() && !c.out_t.is_square)
      amax->of_cols[b][r] = float_bits(
          store_block_scale(c, c.out_t, first_col + r, row_step + b, amax->of_cols[b][r]));
  }
}

/* A part of out_t that goes through shared memory at once: 32 rows of the tile. */
constexpr int kTurnedRows = 32;

template <typename Source, typename Out>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks_kernel(Source source, BlockCall<Out> c, float *amax_target,
                           float *nonfinite_target) {
  __shared__ Stats shared[kWarps];
  __shared__ TileAmax amax;
  __shared__ typename Out::Stored turned[kBlockTile][kTurnedRows + kQuad];
  const int64_t first_row = row_tile() * kBlockTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kBlockTile;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kBlockTile * kMostBlocks; i += kThreads) {
    amax.of_rows[i / kMostBlocks][i % kMostBlocks] = 0;
    amax.of_cols[i / kBlockTile][i % kBlockTile] = 0;
  }
  __syncthreads();
  const Stats stats = measure_tile<Source, Out>(source, first_row, first_col, c.length, &amax);
  const Stats all = merge_block(stats, shared);
  if (thread == 0) publish(all, amax_target, nonfinite_target);
  scale_tile(c, first_row, first_col, &amax);
  __syncthreads();

  for (int band = 0; band < kBlockTile; band += kTurnedRows) {
    for (int i = thread; i < kTurnedRows * kBlockTile / kQuad; i += kThreads) {
      const int r = band + i / (kBlockTile / kQuad);
      const int col = i % (kBlockTile / kQuad) * kQuad;
      float values[kQuad];
      const int count = source.quad(first_row + r, first_col + col, values);
      typename Out::Stored codes[kQuad];
      const int32_t square = amax.of_squares[r / c.length][col / c.length];
      for (int k = 0; k < kQuad; ++k) {
        const float scale = bits_float(c.out.is_square ? square : amax.of_rows[r][col / c.length]);
        codes[k] =
            k < count ? code_of<Out>(values[k], scale, c.keeps_positive) : typename Out::Stored{0};
      }
      if (c.out.exists()) c.out.codes.store(first_row + r, first_col + col, codes);
      for (int k = 0; c.out_t.exists() && k < kQuad; ++k) {
        const float scale =
            bits_float(c.out_t.is_square ? square : amax.of_cols[r / c.length][col + k]);
        turned[col + k][r - band] =
            k < count ? code_of<Out>(values[k], scale, c.keeps_positive) : typename Out::Stored{0};
      }
    }
    if (!c.out_t.exists()) continue;
    __syncthreads();
    for (int i = thread; i < kBlockTile * kTurnedRows / kQuad; i += kThreads) {
      const int col = i / (kTurnedRows / kQuad);
      const int r = i % (kTurnedRows / kQuad) * kQuad;
      typename Out::Stored codes[kQuad];
      for (int k = 0; k < kQuad; ++k) codes[k] = turned[col][r + k];
      c.out_t.codes.store(first_col + col, first_row + band + r, codes);
    }
    __syncthreads();
  }
}

}  // namespace octavo::cuda
