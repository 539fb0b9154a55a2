// FNV-1a, for values that are compared and never stored for long.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::core {

class Hash {
 public:
  void add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      value_ ^= static_cast<const unsigned char *>(data)[i];
      value_ *= 1099511628211u;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037u;
};

}  // namespace octavo::core
