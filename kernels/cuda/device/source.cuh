/* kernels/cuda/device/source.cuh: where the values of a quantize come from.
 *
 * A source gives fp32 values of a [rows, cols] matrix, four at once; kernels take it as a template
 * argument, so that a norm or an activation is computed where its result is cast.
 */
#pragma once

#include "kernels/cuda/device/element.cuh"

namespace octavo::cuda {

constexpr int kQuad = 4; /* elements that a thread takes at once */

/* fl32(element * factor) of a tensor. */
template <typename In>
struct TensorSource {
  const typename In::Stored *data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  const float *factor; /* on the device; null: 1 */
  bool is_aligned;     /* every row begins where a Pack of kQuad may be */

  __device__ float value(int64_t row, int64_t col) const {
    return scaled(In::decode(data[row * stride + col]));
  }

  /* Elements beyond the matrix are 0 and in_range says how many are not; col is a multiple of
   * kQuad. */
  __device__ int quad(int64_t row, int64_t col, float (&values)[kQuad]) const {
    if (row >= rows || col >= cols) {
      for (float &v : values) v = 0.0f;
      return 0;
    }
    const typename In::Stored *from = data + row * stride + col;
    const int64_t left = cols - col;
    if (is_aligned && left >= kQuad) {
      const auto pack = *reinterpret_cast<const Pack<typename In::Stored, kQuad> *>(from);
      for (int i = 0; i < kQuad; ++i) values[i] = scaled(In::decode(pack.at[i]));
      return kQuad;
    }
    const int count = left < kQuad ? static_cast<int>(left) : kQuad;
    for (int i = 0; i < kQuad; ++i) values[i] = i < count ? scaled(In::decode(from[i])) : 0.0f;
    return count;
  }

 private:
  __device__ float scaled(float v) const { return factor == nullptr ? v : v * *factor; }
};

/* Whether packs of kQuad elements of `bytes` may be at the start of every row. */
inline bool rows_are_aligned(const octavo_tensor &t, int64_t bytes) {
  const auto pack = static_cast<uint64_t>(bytes * kQuad);
  return reinterpret_cast<uintptr_t>(t.data) % pack == 0 &&
         (t.rows <= 1 || static_cast<uint64_t>(t.stride * bytes) % pack == 0);
}

template <typename In>
TensorSource<In> tensor_source(const octavo_tensor &t, const float *factor) {
  using Stored = typename In::Stored;
  return {static_cast<const Stored *>(t.data), t.rows, t.cols, t.stride, factor,
          rows_are_aligned(t, sizeof(Stored))};
}

}  // namespace octavo::cuda
