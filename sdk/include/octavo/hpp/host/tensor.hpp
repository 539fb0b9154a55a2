// octavo/hpp/host/tensor.hpp: borrowed matrices, and memory as every call may want it.
#ifndef OCTAVO_HPP_HOST_TENSOR_HPP
#define OCTAVO_HPP_HOST_TENSOR_HPP

#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "octavo/tensor.h"

namespace octavo {
inline namespace hpp {

// The dtype of a C++ type; 16-bit and FP8 values have none in C++17 and are named by the caller.
template <typename T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<std::remove_cv_t<T>, float>) return OCTAVO_F32;
  if constexpr (std::is_same_v<std::remove_cv_t<T>, int32_t>) return OCTAVO_I32;
  if constexpr (std::is_same_v<std::remove_cv_t<T>, uint8_t>) return OCTAVO_U8;
  return 0;
}

// A view of [rows, cols] elements; `stride` lies between the starts of two rows. The memory is the
// caller's, and an input is never written, so const data may be viewed, too.
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

// Uninitialized memory at a multiple of 256 bytes: `saved`, workspaces, weights. Move only.
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

}  // namespace hpp
}  // namespace octavo

#endif
