// Memory for arguments, each of exactly the size that the contract states, so that a sanitizer sees
// every byte that is read or written beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "octavo/octavo.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {

struct Free {
  void operator()(void *p) const { std::free(p); }
};

// Bytes that begin at a multiple of 256; null for none.
class Block {
 public:
  explicit Block(uint64_t bytes = 0, uint8_t fill = 0) {
    if (bytes == 0) return;
    void *memory = nullptr;
    expect(posix_memalign(&memory, 256, bytes) == 0, "memory of the size that was stated",
           std::to_string(bytes));
    std::memset(memory, fill, bytes);
    data_.reset(memory);
  }
  void *get() const { return data_.get(); }

 private:
  std::unique_ptr<void, Free> data_;
};

// A struct that can grow, as a caller of some other age hands it over: `size` bytes and no more.
template <typename T>
class Sized {
 public:
  Sized(const T &full, uint32_t size)
      : block_(std::max<uint32_t>(size, 8)), bytes_(std::max<uint32_t>(size, 8)) {
    std::memcpy(block_.get(), &full, std::min<size_t>(bytes_, sizeof(T)));
    get()->size = size;
  }
  T *get() const { return static_cast<T *>(block_.get()); }

 private:
  Block block_;
  uint32_t bytes_;
};

inline uint64_t width_of(uint32_t dtype) {
  const uint64_t bytes = OCTAVO_DTYPE_BITS(dtype) / 8;
  return bytes == 0 || bytes > 16 ? 8 : bytes;
}

// The most elements of one tensor that is given memory.
constexpr int64_t kMostElements = 1 << 14;

inline bool is_small(int64_t rows, int64_t cols) {
  return rows >= 0 && cols >= 0 && rows <= kMostElements && cols <= kMostElements &&
         rows * cols <= kMostElements;
}

// A matrix with its memory.
struct Matrix {
  Matrix(int64_t rows, int64_t cols, uint32_t dtype, int64_t stride = 0)
      : block(
            is_small(rows, std::max(cols, stride)) && rows > 0 && cols > 0
                ? (static_cast<uint64_t>(rows - 1) * static_cast<uint64_t>(std::max(cols, stride)) +
                   static_cast<uint64_t>(cols)) *
                      width_of(dtype)
                : 0),
        tensor{block.get(), rows, cols, std::max(cols, stride), dtype, 0} {}
  Block block;
  octavo_tensor tensor;
};

}  // namespace octavo::fuzz
