// What a test may count and script of the CPU's execution of device code (include/cuda_runtime.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace cuda_on_cpu {

// Of this thread since reset().
struct Counters {
  int launches = 0;
  int allocations = 0;
  int synchronisations = 0;
  int copies = 0;         // cudaMemcpyAsync
  int memsets = 0;        // cudaMemsetAsync
  int largest_block = 0;  // threads
};
Counters &counters();

// What the runtime answers; the defaults are one H100.
struct Script {
  int devices = 1;
  cudaError_t device_count_error = cudaSuccess;
  int capability_major = 9;
  int capability_minor = 0;
  bool has_code = true;     // for the devices
  int multiprocessors = 4;  // few, so that grids wrap in tests
  int driver_version = 13000;
  size_t total_bytes = size_t{80} << 30;
  size_t free_bytes = size_t{79} << 30;
  int launches_before_failure = -1;  // -1: none fails
  cudaError_t launch_failure = cudaErrorIllegalAddress;
  cudaError_t launch_error = cudaSuccess;  // of each launch, which does not happen then
  // In which order the threads of a block, and the blocks of a grid, get their turns.
  enum class Order { kForward, kBackward, kShuffled } order = Order::kForward;
  uint64_t seed = 1;
  bool is_capturing = false;  // every stream
  float milliseconds = 0.0f;  // the time that an event records
};
Script &script();

// Counters, script and the sticky error as at the start: of this thread, but for the script.
void reset();

}  // namespace cuda_on_cpu
