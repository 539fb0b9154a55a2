/* kernels/cuda/device/prologue.cuh: norms and activations, as a source of values for quantize.
 *
 * A norm needs mean and rstd of its rows first: a launch leaves them in the workspace, then the
 * kernels of quantize compute each value where they cast it, rounded to the dtype that it would
 * have had in memory. Sums are in the order of kernels/cpu/prologue_loops.h: 16 sums of the columns
 * with equal remainders, then added by halves.
 */
#ifndef OCTAVO_KERNELS_CUDA_DEVICE_PROLOGUE_CUH
#define OCTAVO_KERNELS_CUDA_DEVICE_PROLOGUE_CUH

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

struct NormTargets {
  RowNorm *norms;
  float *mean; /* or null */
  float *rstd; /* or null */
};

/* kThreads / kSumParts rows for each block of threads; threads without a row compute row 0 again.
 */
[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    row_norms_kernel(AnyTensor in, bool has_mean, float eps, NormTargets to) {
  constexpr int kRows = kThreads / kSumParts;
  const int lane = static_cast<int>(threadIdx.x) % kSumParts;
  const int64_t wanted = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kSumParts;
  const int64_t row = wanted < in.rows ? wanted : 0;
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
  const float rstd = with_one_nan(1.0f / square_root(variance + eps));
  if (lane != 0 || wanted >= in.rows) return;
  to.norms[row] = {mean, rstd};
  if (to.mean != nullptr) to.mean[row] = mean;
  if (to.rstd != nullptr) to.rstd[row] = rstd;
}

/* The result of a prologue, element by element, as if it had been stored as Stored. */
template <typename Result>
struct PrologueSource {
  AnyTensor in;
  AnyTensor gamma;
  AnyTensor beta; /* data is null where there is none */
  const RowNorm *norms;
  uint32_t op;
  int64_t rows;
  int64_t cols;

  __device__ float value(int64_t row, int64_t col) const {
    const float x = in.load(in.at(row, col));
    return Result::decode(Result::store(result(x, row, col)));
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
  __device__ float result(float x, int64_t row, int64_t col) const {
    switch (op) {
      case OCTAVO_PROLOGUE_GELU: return gelu(x);
      case OCTAVO_PROLOGUE_GELU_TANH: return gelu_tanh(x);
      case OCTAVO_PROLOGUE_SWIGLU: return swiglu(x, in.load(in.at(row, cols + col)));
      default: break;
    }
    const RowNorm norm = norms[row];
    const float scaled = product_of(product_of(x - norm.mean, norm.rstd), gamma.load(col));
    const float shifted = beta.data == nullptr ? scaled : sum_of(scaled, beta.load(col));
    return with_one_nan(shifted);
  }
};

/* prologue without a quantize. */
template <typename Result>
__global__ void prologue_kernel(PrologueSource<Result> source, AnyTensor out) {
  const int64_t count = source.rows * source.cols;
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t row = i / source.cols;
    const int64_t col = i % source.cols;
    out.store(out.at(row, col), source.value(row, col));
  }
}

}  // namespace octavo::cuda

#endif
