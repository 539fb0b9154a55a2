/* kernels/cuda/device/quantize_rows.cuh: quantize with a scale for each row.
 *
 * Without out_t one launch: a block of threads takes a row, measures and casts it. With out_t,
 * whose rows are the input's columns, all must be measured first: until the last launch what is
 * where scales will be is an amax.
 */
#pragma once

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/target.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/scale_rules.h"

namespace octavo::cuda {

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

/* Rows of out, padding included, without out_t. */
template <typename Source, typename Out>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(Source source, RowRule rule, Target<Out> out, RowScales scales,
                         float *amax, float *nonfinite) {
  __shared__ Stats shared[kWarps];
  for (int64_t row = blockIdx.x; row < out.rows; row += gridDim.x) {
    Stats stats = {};
    const int64_t step = int64_t{kThreads} * kQuad;
    const int64_t begin = static_cast<int64_t>(threadIdx.x) * kQuad;
    float values[kQuad];
    for (int64_t col = begin; row < source.rows && col < source.cols; col += step) {
      const int count = source.quad(row, col, values);
      for (int k = 0; k < count; ++k) stats.add(values[k]);
    }
    stats = merge_block(stats, shared);
    __syncthreads();
    const float scale = rule.scale(bits_float(stats.amax_bits));
    for (int64_t col = begin; col < out.cols; col += step) {
      typename Out::Stored codes[kQuad];
      const int count = source.quad(row, col, values);
      for (int k = 0; k < kQuad; ++k)
        codes[k] = k < count ? code_of<Out>(values[k], scale, rule.keeps_positive)
                             : typename Out::Stored{0};
      out.store(row, col, codes);
    }
    if (threadIdx.x == 0) {
      scales.at(row) = 1.0f / scale;
      publish(stats, amax, nonfinite);
    }
  }
}

/* Before measuring: every scale is an amax of 0. */
[[maybe_unused]] static __global__ void clear_row_scales_kernel(RowScales out, RowScales out_t) {
  for (int64_t i = first_index(); i < out.rows; i += index_step()) out.at(i) = 0.0f;
  for (int64_t i = first_index(); i < out_t.rows; i += index_step()) out_t.at(i) = 0.0f;
}

/* Tiles of kTile x kTile in blocks of 16 x 16 threads. */
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    measure_rows_kernel(Source source, RowScales out, RowScales out_t, float *amax,
                        float *nonfinite) {
  __shared__ Stats shared[kWarps];
  __shared__ int32_t of_cols[kTile];
  __shared__ int32_t of_rows[kTile];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (thread < kTile) of_cols[thread] = of_rows[thread] = 0;
  __syncthreads();
  const int64_t first_row = row_tile() * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  Stats stats = {};
  for (int r = static_cast<int>(threadIdx.y); r < kTile; r += 16) {
    const int c = static_cast<int>(threadIdx.x) * kQuad;
    float values[kQuad];
    const int count = source.quad(first_row + r, first_col + c, values);
    Stats of_quad = {};
    for (int k = 0; k < count; ++k) {
      Stats of_value = {};
      of_value.add(values[k]);
      atomicMax(&of_cols[c + k], of_value.amax_bits);
      of_quad.merge(of_value);
    }
    atomicMax(&of_rows[r], of_quad.amax_bits);
    stats.merge(of_quad);
  }
  stats = merge_block(stats, shared);
  if (thread == 0) publish(stats, amax, nonfinite);
  if (thread >= kTile) return;
  if (out.data != nullptr && first_row + thread < source.rows)
    atomicMax(reinterpret_cast<int32_t *>(&out.at(first_row + thread)), of_rows[thread]);
  if (first_col + thread < source.cols)
    atomicMax(reinterpret_cast<int32_t *>(&out_t.at(first_col + thread)), of_cols[thread]);
}

/* Tiles again, over the padding, too. */
template <typename Source, typename Out>
__global__ void __launch_bounds__(kThreads)
    cast_rows_and_cols_kernel(Source source, RowRule rule, Target<Out> out, RowScales scales,
                              Target<Out> out_t, RowScales scales_t) {
  __shared__ TurnedTile<Out> turned;
  const int64_t first_row = row_tile() * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int r = static_cast<int>(threadIdx.y); r < kTile; r += 16) {
    const int c = static_cast<int>(threadIdx.x) * kQuad;
    const int64_t row = first_row + r;
    float values[kQuad];
    typename Out::Stored codes[kQuad];
    const int count = source.quad(row, first_col + c, values);
    const float of_row =
        out.data != nullptr && row < source.rows ? rule.scale(scales.at(row)) : 1.0f;
    for (int k = 0; k < kQuad; ++k) {
      codes[k] = k < count ? code_of<Out>(values[k], of_row, rule.keeps_positive)
                           : typename Out::Stored{0};
      const float of_col = k < count ? rule.scale(scales_t.at(first_col + c + k)) : 1.0f;
      turned.at[c + k][r] = k < count ? code_of<Out>(values[k], of_col, rule.keeps_positive)
                                      : typename Out::Stored{0};
    }
    if (out.data != nullptr) out.store(row, first_col + c, codes);
  }
  __syncthreads();
  store_turned(turned, out_t, first_row, first_col);
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
