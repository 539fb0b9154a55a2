// Descriptor: closes a file of the system when it goes.
#pragma once

#include <unistd.h>

#include <utility>

namespace octavo {

class Descriptor {
 public:
  explicit Descriptor(int file = -1) : file_(file) {}
  Descriptor(Descriptor &&other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Descriptor() {
    if (file_ >= 0) close(file_);
  }
  int get() const { return file_; }  // negative: none

 private:
  int file_;
};

}  // namespace octavo
