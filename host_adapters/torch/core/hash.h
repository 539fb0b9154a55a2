// Hashes of values that are compared and never stored for long: FNV-1a, and a checksum of a weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "view.h"

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

// Of the bytes of a matrix on the CPU, in the order of its memory, by torch's threads: equal for
// equal values whatever their number. Never 0, but for a tensor whose rows and columns both have
// gaps, of which none is taken. Reads each element once. Throws when torch cannot run its threads.
uint64_t checksum(View weight);

}  // namespace octavo::core
