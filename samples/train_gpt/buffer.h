// Memory for matrices: zero-filled and aligned to 256 bytes.
//
// Octavo asks for this alignment of weights, `saved` and workspaces (octavo/tensor.h); a
// std::vector<float> does not give it.
#ifndef TRAIN_GPT_BUFFER_H
#define TRAIN_GPT_BUFFER_H

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace gpt {

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) { reset(count); }

  // Forgets the old content: `count` elements, all zero.
  void reset(size_t count) {
    data_.reset(static_cast<T *>(::operator new(std::max<size_t>(count, 1) * sizeof(T), kAlign)));
    size_ = count;
    clear();
  }
  // As reset, but only when the buffer is too small.
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

}  // namespace gpt

#endif
