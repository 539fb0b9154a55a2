/* kernels/cuda/device/gemm_finish.cuh: from sums of products to d: scales, bias, what d held,
 * rounding. Without any of them it converts a matrix from one dtype to another.
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

  /* What d becomes but for the last rounding; `scale`, `bias_of` and `old` where they are wanted.
   */
  __device__ float value_of(float sum, float scale, float bias_of, float old) const {
    float value = is_scaled ? sum * scale : sum;
    if (bias.data != nullptr) {
      if (bias_after) value = rounded_to(d.dtype, value);
      value += bias_of;
      if (bias_after) value = rounded_to(d.dtype, value);
    }
    return accumulates ? old + value : value;
  }

  __device__ void store(int64_t row, int64_t col, float sum) const {
    const float scale = is_scaled ? a_scale.at(row, 0) * b_scale.at(col, 0) : 1.0f;
    const float bias_of = bias.data != nullptr ? bias.load(col) : 0.0f;
    const int64_t to = d.at(row, col);
    d.store(to, value_of(sum, scale, bias_of, accumulates ? d.load(to) : 0.0f));
  }
};

/* One element, or a pack that is aligned as load_pack needs it. */
template <int kCount>
__device__ __forceinline__ void load_run(const AnyTensor &t, int64_t at, float (&values)[kCount]) {
  if constexpr (kCount == 1)
    values[0] = t.load(at);
  else
    decode_pack(t.dtype, load_pack(t.address(at), t.bytes()), values);
}
template <int kCount>
__device__ __forceinline__ void store_run(const AnyTensor &t, int64_t at,
                                          const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    t.store(at, values[0]);
  } else {
    RawPack raw = {};
    round_pack(t.dtype, values, &raw);
    store_pack(t.address(at), t.bytes(), raw);
  }
}

/* sums and d of one shape, whose columns are a multiple of kCount, 1 or kPack; they may be one
 * matrix. A thread keeps its columns, and with them bias and scales, while it walks along the rows.
 */
template <int kCount>
static __global__ void finish_gemm_kernel(AnyTensor sums, Finish finish) {
  const int64_t runs = sums.cols / kCount;
  for (int64_t run = first_index(); run < runs; run += index_step()) {
    const int64_t col = run * kCount;
    float bias[kCount] = {};
    float scale[kCount] = {};
    for (int i = 0; i < kCount; ++i) {
      if (finish.bias.data != nullptr) bias[i] = finish.bias.load(col + i);
      if (finish.is_scaled) scale[i] = finish.b_scale.at(col + i, 0);
    }
    for (int64_t row = blockIdx.y; row < sums.rows; row += gridDim.y) {
      float values[kCount];
      float old[kCount] = {};
      load_run(sums, sums.at(row, col), values);
      const int64_t to = finish.d.at(row, col);
      if (finish.accumulates) load_run(finish.d, to, old);
      const float row_scale = finish.is_scaled ? finish.a_scale.at(row, 0) : 1.0f;
      for (int i = 0; i < kCount; ++i)
        values[i] = finish.value_of(values[i], row_scale * scale[i], bias[i], old[i]);
      store_run(finish.d, to, values);
    }
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
