/* kernels/cuda/device/gemm_finish.cuh: from sums of products to d: scales, bias, what d held,
 * rounding.
 */
#pragma once

#include "kernels/check/calls.h"
#include "kernels/cuda/device/dequantize.cuh"

namespace octavo::cuda {

/* fl32 of the value in a plain dtype. */
__device__ inline float rounded_to(uint32_t dtype, float value) {
  switch (dtype) {
    case OCTAVO_BF16: return decode_bf16(encode_bf16(value));
    case OCTAVO_F16: return decode_f16(encode_f16(value));
    default: return value;
  }
}

struct Finish {
  AnyTensor d;
  AnyTensor bias;   /* data is null where there is none */
  ScaleInv a_scale; /* of the rows of d */
  ScaleInv b_scale; /* of its columns */
  bool is_scaled;
  bool bias_after; /* a rounding before the bias and one after it */
  bool accumulates;

  __device__ void store(int64_t row, int64_t col, float sum) const {
    float value = sum;
    if (is_scaled) value *= a_scale.at(row, 0) * b_scale.at(col, 0);
    if (bias.data != nullptr) {
      if (bias_after) value = rounded_to(d.dtype, value);
      value += bias.load(col);
      if (bias_after) value = rounded_to(d.dtype, value);
    }
    const int64_t to = d.at(row, col);
    if (accumulates) value = d.load(to) + value;
    d.store(to, value);
  }
};

/* sums and d of one shape; they may be one matrix. */
[[maybe_unused]] static __global__ void finish_gemm_kernel(AnyTensor sums, Finish finish) {
  const int64_t count = sums.rows * sums.cols;
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const int64_t row = i / sums.cols;
    const int64_t col = i % sums.cols;
    finish.store(row, col, sums.load(sums.at(row, col)));
  }
}

inline ScaleInv scale_inv_view(const octavo_scale *s) {
  if (s == nullptr) return {nullptr, 0, OCTAVO_PER_TENSOR};
  return {s->data, s->stride, s->granularity};
}

/* What remains to be done for d; `with_scales`: the scales of rows too. */
inline Finish finish_of(const octavo_gemm &c, bool with_scales, const octavo_tensor *bias) {
  const bool is_scaled = with_scales && (c.a_scale_inv != nullptr || c.b_scale_inv != nullptr);
  return {any_tensor(*c.d),
          bias == nullptr ? AnyTensor{} : any_tensor(*bias),
          scale_inv_view(is_scaled ? c.a_scale_inv : nullptr),
          scale_inv_view(is_scaled ? c.b_scale_inv : nullptr),
          is_scaled,
          c.bias_after != 0,
          c.accumulate != 0};
}

}  // namespace octavo::cuda
