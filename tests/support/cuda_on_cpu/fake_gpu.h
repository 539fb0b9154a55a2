// The GPU that OCTAVO_FAKE_GPU describes, for the fake runtime and cuBLASLt; the fake driver
// (tests/misconfigurations/fake_gpu.c) reads the same.
#pragma once

#include <cstdlib>
#include <cstring>

namespace cuda_on_cpu {

// "capability=100" is 10.0; without it 9.0.
inline int fake_capability() {
  const char *all = std::getenv("OCTAVO_FAKE_GPU");
  const char *found = all == nullptr ? nullptr : std::strstr(all, "capability=");
  return found == nullptr ? 90 : std::atoi(found + std::strlen("capability="));
}

}  // namespace cuda_on_cpu
