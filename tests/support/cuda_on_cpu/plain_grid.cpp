// Instead of fibers.cpp for kernels whose threads do not talk to each other: one after another, in
// several threads of the CPU at once if need be, and visible to sanitizers, to which fibers are
// not.
#include <cstdio>
#include <cstdlib>

#include "fibers.h"

constinit thread_local dim3 threadIdx;
constinit thread_local dim3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace cuda_on_cpu {
namespace {

[[noreturn]] void refuse() {
  std::fprintf(stderr, "device code: barriers and shuffles need fibers.cpp\n");
  std::abort();
}

}  // namespace

void block_barrier() {
  refuse();
}
uint64_t exchange(unsigned, uint64_t, unsigned) {
  refuse();
}
unsigned lane_id() {
  refuse();
}
unsigned ballot(unsigned, bool) {
  refuse();
}

void run_grid(const dim3 &grid, const dim3 &block, const void *,
              const std::function<void()> &kernel) {
  blockDim = block;
  gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x)
        for (unsigned i = 0; i < block.x * block.y * block.z; ++i) {
          blockIdx = dim3(x, y, z);
          threadIdx = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
          kernel();
        }
}

}  // namespace cuda_on_cpu
