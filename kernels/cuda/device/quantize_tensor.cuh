/* kernels/cuda/device/quantize_tensor.cuh: quantize with one scale for the tensor.
 *
 * Given scales: one launch that reads once. Current scaling: a launch that leaves the amax of every
 * block in the workspace, and a launch in which each block takes the maximum of those and derives
 * the scale for itself; so nothing has to be cleared before and the scale never leaves the device.
 */
#pragma once

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/target.cuh"
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
template <typename Source>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(Source source, TensorScale scale, Stats *parts, Accumulators into) {
  __shared__ Stats shared[kWarps];
  if (parts != nullptr && scale.is_given()) return; /* nobody will look */
  Stats stats = {};
  const int64_t per_row = (source.cols + kQuad - 1) / kQuad;
  const int64_t quads = source.rows * per_row;
  for (int64_t i = first_index(); i < quads; i += index_step()) {
    float values[kQuad];
    const int count = source.quad(i / per_row, i % per_row * kQuad, values);
    for (int k = 0; k < count; ++k) stats.add(values[k]);
  }
  stats = merge_block(stats, shared);
  if (threadIdx.x != 0) return;
  if (parts != nullptr) {
    parts[blockIdx.x] = stats;
  } else {
    publish(stats, into.amax, into.nonfinite);
  }
}

/* The scale of the call, the same in every thread of every block. */
__device__ inline float scale_of_call(const TensorScale &s, Stats (&shared)[kWarps]) {
  const float kept = s.given == nullptr ? 1.0f : *s.given;
  if (s.is_given()) return kept;
  Stats stats = {};
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int i = thread; i < s.part_count; i += kThreads) stats.merge(s.parts[i]);
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

/* The second launch without out_t: quads of out, one after the other. */
template <typename Source, typename Out>
__global__ void __launch_bounds__(kThreads)
    cast_rows_kernel(Source source, TensorScale s, TensorOutputs<Out> to, Accumulators into) {
  __shared__ Stats shared[kWarps];
  const float scale = scale_of_call(s, shared);
  const int64_t per_row = (to.out.cols + kQuad - 1) / kQuad;
  const int64_t quads = to.out.rows * per_row;
  Stats stats = {};
  for (int64_t i = first_index(); i < quads; i += index_step()) {
    const int64_t row = i / per_row;
    const int64_t col = i % per_row * kQuad;
    float values[kQuad];
    typename Out::Stored codes[kQuad];
    const int count = source.quad(row, col, values);
    for (int k = 0; k < kQuad; ++k) {
      if (k < count) stats.add(values[k]);
      codes[k] =
          k < count ? code_of<Out>(values[k], scale, to.keeps_positive) : typename Out::Stored{0};
    }
    to.out.store(row, col, codes);
  }
  stats = merge_block(stats, shared);
  if (threadIdx.x != 0) return;
  publish(stats, into.amax, into.nonfinite);
  if (blockIdx.x == 0) store_scale_inv(to, scale);
}

/* The second launch with out_t: tiles of kTile x kTile in blocks of 16 x 16 threads, also over
 * padding. */
template <typename Source, typename Out>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(Source source, TensorScale s, TensorOutputs<Out> to, Accumulators into) {
  __shared__ Stats shared[kWarps];
  __shared__ TurnedTile<Out> turned;
  const float scale = scale_of_call(s, shared);
  const int64_t first_row = row_tile() * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  Stats stats = {};
  for (int r = static_cast<int>(threadIdx.y); r < kTile; r += 16) {
    const int c = static_cast<int>(threadIdx.x) * kQuad;
    float values[kQuad];
    typename Out::Stored codes[kQuad];
    const int count = source.quad(first_row + r, first_col + c, values);
    for (int k = 0; k < kQuad; ++k) {
      if (k < count) stats.add(values[k]);
      codes[k] =
          k < count ? code_of<Out>(values[k], scale, to.keeps_positive) : typename Out::Stored{0};
      if (to.out_t.data != nullptr) turned.at[c + k][r] = codes[k];
    }
    if (to.out.data != nullptr) to.out.store(first_row + r, first_col + c, codes);
  }
  stats = merge_block(stats, shared); /* a barrier, after which the tile is complete */
  if (to.out_t.data != nullptr) store_turned(turned, to.out_t, first_row, first_col);
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  publish(stats, into.amax, into.nonfinite);
  if (blockIdx.x == 0 && row_tile() == 0) store_scale_inv(to, scale);
}

}  // namespace octavo::cuda
