/* kernels/cuda/device/any_tensor.cuh: a matrix whose dtype is known when the kernel runs.
 *
 * For kernels that take several tensors of any dtype: all threads take the same branch, and one
 * kernel serves every combination.
 */
#pragma once

#include <initializer_list>

#include "kernels/cuda/device/element.cuh"

namespace octavo::cuda {

struct AnyTensor {
  void *data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  uint32_t dtype;

  __device__ int64_t at(int64_t row, int64_t col) const { return row * stride + col; }
  /* Of the element with this number in the order of rows. */
  __device__ int64_t at(int64_t index) const {
    return stride == cols ? index : index / cols * stride + index % cols;
  }

  __device__ int bytes() const { return static_cast<int>(OCTAVO_DTYPE_BITS(dtype) / 8); }
  __device__ void *address(int64_t at) const { return static_cast<char *>(data) + at * bytes(); }
  __device__ float load(int64_t at) const {
    switch (dtype) {
      case OCTAVO_F32: return static_cast<const float *>(data)[at];
      case OCTAVO_BF16: return decode_bf16(static_cast<const uint16_t *>(data)[at]);
      case OCTAVO_F16: return from_f16(static_cast<const uint16_t *>(data)[at]);
      case OCTAVO_E4M3FN: return from_e4m3(static_cast<const uint8_t *>(data)[at]);
      default: return from_e5m2(static_cast<const uint8_t *>(data)[at]);
    }
  }
  /* Rounded, to a plain tensor. */
  __device__ void store(int64_t at, float value) const {
    switch (dtype) {
      case OCTAVO_F32: static_cast<float *>(data)[at] = value; return;
      case OCTAVO_BF16: static_cast<uint16_t *>(data)[at] = encode_bf16(value); return;
      default: static_cast<uint16_t *>(data)[at] = encode_f16(value);
    }
  }
  /* The saturating code of a value that was scaled; `is_raised`: code 0 becomes 1. */
  __device__ void cast(int64_t at, float value, bool is_raised) const {
    if (dtype == OCTAVO_F16) {
      const uint16_t code = encode_f16_saturating(value);
      static_cast<uint16_t *>(data)[at] = is_raised && code == 0 ? uint16_t{1} : code;
      return;
    }
    const uint8_t code = dtype == OCTAVO_E4M3FN ? to_e4m3(value) : to_e5m2(value);
    static_cast<uint8_t *>(data)[at] = is_raised && code == 0 ? uint8_t{1} : code;
  }
};

inline bool is_aligned_to(uintptr_t bytes, std::initializer_list<const void *> addresses) {
  for (const void *address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) return false;
  }
  return true;
}

inline AnyTensor any_tensor(const octavo_tensor &t) {
  return {t.data, t.rows, t.cols, t.rows <= 1 ? t.cols : t.stride, t.dtype};
}

}  // namespace octavo::cuda
