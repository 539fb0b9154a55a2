/* kernels/cuda/device/prologue.cuh: norms and activations, as a source of values for quantize.
 *
 * A norm needs mean and rstd of its rows first: a launch leaves them in the workspace, then the
 * kernels of quantize compute each value where they cast it, rounded to the dtype that it would
 * have had in memory. Sums are in the order of kernels/cpu/prologue_loops.h: 16 sums of the columns
 * with equal remainders, then added by halves.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/source.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/activation.h"
#include "kernels/format/adam.h"
#include "octavo/prologue.h"

namespace octavo::cuda {

struct RowNorm {
  float mean;
  float rstd;
};

constexpr int kSumParts = 16; /* threads of a row */

__device__ inline float total_of_parts(float part) {
  for (int half = kSumParts / 2; half > 0; half /= 2) {
    part += __shfl_down_sync(kAllLanes, part, static_cast<unsigned>(half));
  }
  return __shfl_sync(kAllLanes, part,
                     static_cast<int>(threadIdx.x % kWarp / kSumParts * kSumParts));
}

/* The norm of a row, by the kSumParts threads that have it; each gets it. */
struct NormRule {
  bool has_mean;
  float eps;

  __device__ RowNorm of(const AnyTensor &in, int64_t row, int lane) const {
    const float count = static_cast<float>(in.cols);
    float mean = 0.0f;
    if (has_mean) {
      float part = 0.0f;
      for (int64_t col = lane; col < in.cols; col += kSumParts) part += in.load(in.at(row, col));
      mean = with_one_nan(total_of_parts(part) / count);
    }
    float part = 0.0f;
    for (int64_t col = lane; col < in.cols; col += kSumParts) {
      const float distance = in.load(in.at(row, col)) - mean;
      part = product_sum_of(distance, distance, part);
    }
    const float variance = total_of_parts(part) / count;
    return {mean, with_one_nan(1.0f / square_root(variance + eps))};
  }
};

struct NormTargets {
  RowNorm *norms; /* or null */
  float *mean;    /* or null */
  float *rstd;    /* or null */

  __device__ void store(int64_t row, const RowNorm &norm) const {
    if (norms != nullptr) norms[row] = norm;
    if (mean != nullptr) mean[row] = norm.mean;
    if (rstd != nullptr) rstd[row] = norm.rstd;
  }
};

constexpr int kNormRows = kThreads / kSumParts; /* rows of a block of threads */

/* The row of a thread; threads without one compute row 0 again. */
struct NormThread {
  int lane;
  int64_t wanted;
  int64_t row;

  __device__ explicit NormThread(int64_t rows)
      : lane(static_cast<int>(threadIdx.x) % kSumParts),
        wanted(static_cast<int64_t>(blockIdx.x) * kNormRows + threadIdx.x / kSumParts),
        row(wanted < rows ? wanted : 0) {}
};

[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    row_norms_kernel(AnyTensor in, NormRule rule, NormTargets to) {
  const NormThread t(in.rows);
  const RowNorm norm = rule.of(in, t.row, t.lane);
  if (t.lane == 0 && t.wanted < in.rows) to.store(t.row, norm);
}

/* The result of a prologue, element by element, as if it had been stored as Stored. */
template <typename Result>
struct PrologueSource {
  AnyTensor in;
  AnyTensor gamma;
  AnyTensor beta;       /* data is null where there is none */
  const RowNorm *norms; /* null: the operation has none, or the kernel has them at hand */
  uint32_t op;
  int64_t rows;
  int64_t cols;

  __device__ void prepare() {}
  __device__ float value(int64_t row, int64_t col) const {
    const RowNorm none = {};
    return value(row, col, norms == nullptr ? none : norms[row]);
  }
  __device__ float value(int64_t row, int64_t col, const RowNorm &norm) const {
    const float x = in.load(in.at(row, col));
    return Result::decode(Result::store(result(x, row, col, norm)));
  }
  __device__ int quad(int64_t row, int64_t col, float (&values)[kQuad]) const {
    int count = 0;
    for (int i = 0; i < kQuad; ++i) {
      const bool exists = row < rows && col + i < cols;
      values[i] = exists ? value(row, col + i) : 0.0f;
      count += exists ? 1 : 0;
    }
    return count;
  }

 private:
  __device__ float result(float x, int64_t row, int64_t col, const RowNorm &norm) const {
    switch (op) {
      case OCTAVO_PROLOGUE_GELU: return gelu(x);
      case OCTAVO_PROLOGUE_GELU_TANH: return gelu_tanh(x);
      case OCTAVO_PROLOGUE_SWIGLU: return swiglu(x, in.load(in.at(row, cols + col)));
      default: break;
    }
    const float scaled = product_of(product_of(x - norm.mean, norm.rstd), gamma.load(col));
    const float shifted = beta.data == nullptr ? scaled : sum_of(scaled, beta.load(col));
    return with_one_nan(shifted);
  }
};

/* A norm alone, which needs no workspace: the threads of a row compute it, then the row. */
template <typename Result>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(PrologueSource<Result> source, NormRule rule, NormTargets to, AnyTensor out) {
  const NormThread t(source.rows);
  const RowNorm norm = rule.of(source.in, t.row, t.lane);
  if (t.wanted >= source.rows) return;
  if (t.lane == 0) to.store(t.row, norm);
  for (int64_t col = t.lane; col < source.cols; col += kSumParts)
    out.store(out.at(t.row, col), source.value(t.row, col, norm));
}

/* What is no norm, or has norms already. */
template <typename Result>
__global__ void prologue_kernel(PrologueSource<Result> source, AnyTensor out) {
  for (ElementWalk at(source.rows, source.cols); at.is_inside(); at.next())
    out.store(out.at(at.row, at.col), source.value(at.row, at.col));
}

}  // namespace octavo::cuda
