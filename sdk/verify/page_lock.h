// Memory of this program that a CUDA device reads and writes at the same addresses.
//
// Not every GPU reads pageable memory: that takes the driver's heterogeneous memory management. All
// of them read pages that the driver locked, through cuMemHostRegister.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/tensor.h"

namespace octavo::conformance {

class PageLock {
 public:
  explicit PageLock(octavo_device device) : device_(device) {}
  ~PageLock() { clear(); }
  PageLock(const PageLock &) = delete;
  PageLock &operator=(const PageLock &) = delete;

  // Locks whole pages. Does nothing for a CPU, or where no driver is loaded that could: kernels
  // that a CPU executes read any memory. Throws Failure with the driver's error.
  void lock(void *begin, uint64_t bytes);
  void clear();

 private:
  octavo_device device_;
  std::vector<void *> locked_;
};

// Returns when all work of a CUDA device is done, and what it wrote to locked pages is there. Gives
// the driver's error, 0 for none.
int wait_for(octavo_device device);

}  // namespace octavo::conformance
