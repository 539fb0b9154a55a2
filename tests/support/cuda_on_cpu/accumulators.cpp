// One page at two addresses, of which the one that kernels know cannot be written.
#include "accumulators.h"

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace cuda_on_cpu {

Accumulators::Accumulators() {
  static_assert(kBytes == kAccumulatorBytes);
  const int file = memfd_create("accumulators", 0);
  if (file < 0 || ftruncate(file, kBytes) != 0 || accumulators != 0) std::abort();
  const auto map = [file](int access) {
    void *page = mmap(nullptr, kBytes, access, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) std::abort();
    return static_cast<float *>(page);
  };
  data_ = map(PROT_READ);
  written_ = map(PROT_READ | PROT_WRITE);
  close(file);
  accumulators = reinterpret_cast<uintptr_t>(data_);
  accumulators_written = reinterpret_cast<uintptr_t>(written_);
}

Accumulators::~Accumulators() {
  accumulators = 0;
  munmap(data_, kBytes);
  munmap(written_, kBytes);
}

void Accumulators::clear() {
  std::memset(written_, 0, kBytes);
}

}  // namespace cuda_on_cpu
