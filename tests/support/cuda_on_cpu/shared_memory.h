// What a block finds in shared memory: on a device, whatever was there. Here it is poison, a NaN in
// every dtype and an index far outside, so that what a kernel reads before it writes shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuda_on_cpu {

class SharedMemory {
 public:
  // All variables of this kernel, and of the functions that several kernels call.
  explicit SharedMemory(const void *kernel);
  // Those of the calling thread.
  void poison() const;

  static constexpr uint32_t kPoison = 0x7FF97FF9;

 private:
  struct Variable {
    ptrdiff_t offset;  // from threadIdx, which every thread has, too
    size_t bytes;
  };
  std::vector<Variable> variables_;
};

}  // namespace cuda_on_cpu
