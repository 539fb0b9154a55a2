// octavo/hpp/host/tensor.hpp: views of matrices, and a buffer with the alignment of every call.
#ifndef OCTAVO_HPP_HOST_TENSOR_HPP
#define OCTAVO_HPP_HOST_TENSOR_HPP

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "octavo/tensor.h"

namespace octavo {
inline namespace hpp {

// The dtype of a C++ type, or 0. C++17 has no types for 16-bit and FP8 values; pass their dtypes
// explicitly.
template <typename T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<std::remove_cv_t<T>, float>) return OCTAVO_F32;
  if constexpr (std::is_same_v<std::remove_cv_t<T>, int32_t>) return OCTAVO_I32;
  if constexpr (std::is_same_v<std::remove_cv_t<T>, uint8_t>) return OCTAVO_U8;
  return 0;
}

// A view of [rows, cols] elements; `stride` is the distance between the starts of two rows, in
// elements. The caller owns the memory. Inputs are never written, so const data is accepted.
inline octavo_tensor view(const void *data, uint32_t dtype, int64_t rows, int64_t cols,
                          int64_t stride) {
  return {const_cast<void *>(data), rows, cols, stride, dtype, 0};
}
inline octavo_tensor view(const void *data, uint32_t dtype, int64_t rows, int64_t cols) {
  return view(data, dtype, rows, cols, cols);
}
template <typename T, typename = std::enable_if_t<dtype_of<T>() != 0>>
octavo_tensor view(T *data, int64_t rows, int64_t cols) {
  return view(data, dtype_of<T>(), rows, cols, cols);
}

// Uninitialized host memory, aligned to 256 bytes, for `saved`, workspaces and weights. Move-only.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(uint64_t bytes)
      : memory_(std::aligned_alloc(256, (bytes / 256 + 1) * 256)), bytes_(bytes) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  void *data() const { return memory_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void *p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory_;
  uint64_t bytes_ = 0;
};

// Zero-filled numbers at a multiple of 256 bytes, which a std::vector does not give: weights,
// gradients, hyperparameters. Move only.
template <typename T>
class Array {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  Array() = default;
  explicit Array(size_t count) { reset(count); }

  // Forgets the old content: `count` elements, all zero.
  void reset(size_t count) {
    data_.reset(static_cast<T *>(::operator new(std::max<size_t>(count, 1) * sizeof(T), kAlign)));
    size_ = count;
    clear();
  }
  // As reset, but only when it is too small.
  void grow(size_t count) {
    if (count > size_) reset(count);
  }
  // Gives the memory back.
  void release() {
    data_.reset();
    size_ = 0;
  }
  void clear() { std::fill_n(data_.get(), size_, T{}); }

  T *data() { return data_.get(); }
  const T *data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T &operator[](size_t i) { return data_.get()[i]; }
  const T &operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr std::align_val_t kAlign{256};
  struct Free {
    void operator()(T *p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};
template <typename T>
octavo_tensor view(const Array<T> &values, int64_t rows, int64_t cols) {
  return view(values.data(), rows, cols);
}

}  // namespace hpp
}  // namespace octavo

#endif
