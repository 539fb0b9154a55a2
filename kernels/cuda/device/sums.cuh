/* kernels/cuda/device/sums.cuh: sums of codes over shards, of columns, and of squares.
 *
 * Sums of plain values are fp64 in the order of kernels/cpu/sums.cpp, so both devices give the same
 * bits: a column's over its rows; squares in 64 parts of the matrix, each as 16 sums of the
 * elements with equal remainders in segments of 512.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/power.h"

namespace octavo::cuda {

struct CodeSum {
  const void *codes;
  void *out;
  int64_t count;
  int64_t shards;
  int64_t shard_stride;
  uint64_t *outside; /* of every block of threads; null: not wanted */
};

template <typename Codes>
__global__ void __launch_bounds__(kThreads) sum_quantized_kernel(CodeSum c, float largest) {
  __shared__ unsigned shared;
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  const auto *codes = static_cast<const typename Codes::Stored *>(c.codes);
  auto *out = static_cast<typename Codes::Stored *>(c.out);
  unsigned outside = 0;
  for (int64_t i = first_index(); i < c.count; i += index_step()) {
    float sum = 0.0f;
    for (int64_t shard = 0; shard < c.shards; ++shard)
      sum += Codes::decode(codes[shard * c.shard_stride + i]);
    if (absolute(sum) > largest) ++outside;
    out[i] = Codes::cast(sum);
  }
  if (outside > 0) atomicAdd(&shared, outside);
  __syncthreads();
  if (threadIdx.x == 0 && c.outside != nullptr) c.outside[blockIdx.x] = shared;
}

/* One thread: adds what the blocks counted, once, so that the rounding does not depend on them. */
[[maybe_unused]] static __global__ void count_outside_kernel(const uint64_t *outside, int blocks,
                                                             int64_t count, float count_as,
                                                             float *saturated, float *added) {
  uint64_t total = 0;
  for (int i = 0; i < blocks; ++i) total += outside[i];
  if (added != nullptr) atomicAdd(added, static_cast<float>(count) * count_as);
  if (saturated != nullptr && total > 0)
    atomicAdd(saturated, static_cast<float>(static_cast<int64_t>(total)) * count_as);
}

/* One thread for each column. */
[[maybe_unused]] static __global__ void sum_rows_kernel(AnyTensor in, const float *factor,
                                                        float *out, bool accumulates) {
  for (int64_t col = first_index(); col < in.cols; col += index_step()) {
    double sum = 0.0;
    for (int64_t row = 0; row < in.rows; ++row) {
      float value = in.load(in.at(row, col));
      if (factor != nullptr) value *= *factor;
      sum += static_cast<double>(value);
    }
    const float rounded = static_cast<float>(sum);
    out[col] = accumulates ? out[col] + rounded : rounded;
  }
}

constexpr int kSquareBlocks = 64; /* parts of the matrix, one for each block of threads */
constexpr int kSquareParts = 16;  /* threads of a block */
constexpr int64_t kSegment = 512; /* elements */

/* parts[block] = the part's sum of squares. */
[[maybe_unused]] static __global__ void squares_kernel(AnyTensor in, const float *factor,
                                                       double *parts) {
  __shared__ double sums[kSquareParts];
  const int64_t per_row = (in.cols + kSegment - 1) / kSegment;
  const int64_t segments = in.rows * per_row;
  const int64_t per_part = (segments + kSquareBlocks - 1) / kSquareBlocks;
  const int64_t begin = blockIdx.x * per_part;
  const int64_t end = begin + per_part < segments ? begin + per_part : segments;
  double sum = 0.0;
  for (int64_t segment = begin; segment < end; ++segment) {
    const int64_t row = segment / per_row;
    const int64_t first = segment % per_row * kSegment;
    const int64_t last = in.cols < first + kSegment ? in.cols : first + kSegment;
    for (int64_t col = first + threadIdx.x; col < last; col += kSquareParts) {
      float value = in.load(in.at(row, col));
      if (factor != nullptr) value *= *factor;
      sum = product_sum(static_cast<double>(value), static_cast<double>(value), sum);
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int half = kSquareParts / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  parts[blockIdx.x] = sums[0];
}

/* One thread. */
[[maybe_unused]] static __global__ void add_squares_kernel(const double *parts, float *out) {
  double total = 0.0;
  for (int i = 0; i < kSquareBlocks; ++i) total += parts[i];
  atomicAdd(out, static_cast<float>(total));
}

}  // namespace octavo::cuda
