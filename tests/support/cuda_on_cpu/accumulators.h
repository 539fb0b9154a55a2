// Memory that kernels write by atomics alone: a plain store to it ends the process. So the test of
// one call shows whether another one at the same time could be lost.
#pragma once

#include <cstddef>

namespace cuda_on_cpu {

// A page of zeros; one at a time.
class Accumulators {
 public:
  Accumulators();
  ~Accumulators();
  Accumulators(const Accumulators &) = delete;
  Accumulators &operator=(const Accumulators &) = delete;

  static constexpr size_t kBytes = 4096;
  // What kernels get.
  float *data() const { return data_; }
  void clear();

 private:
  float *data_;
  float *written_;  // the same page, where atomics write
};

}  // namespace cuda_on_cpu
