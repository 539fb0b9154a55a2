// What a test may count and script of the CPU's execution of device code (include/cuda_runtime.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

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

uint64_t lazy_of_environment();

// What the runtime answers; the defaults are one H100.
struct Script {
  int devices = 1;
  cudaError_t device_count_error = cudaSuccess;
  int capability_major = 0;  // 0: the fake GPU's, see fake_gpu.h
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
  // kUnfair: one warp of each block, by chance, runs only when no other can.
  enum class Order { kForward, kBackward, kShuffled, kUnfair } order = Order::kForward;
  uint64_t seed = 1;
  bool blocks_at_once = false;  // each block of a small grid in a thread of the CPU
  // Not 0: streams are lazy (streams.h), in an order of this seed. CUDA_ON_CPU_LAZY sets it.
  uint64_t lazy = lazy_of_environment();
  bool is_capturing = false;     // every stream
  bool has_peer_access = false;  // of each device to each
  cudaError_t set_device_error = cudaSuccess;
  float milliseconds = 0.0f;  // the time that an event records
};
Script &script();

// Counters, script and the sticky error as at the start: of this thread, but for the script. What
// streams still hold is forgotten.
void reset();

// As in a new process: the next launch of each kernel is the first one.
void forget_code();

// The thread's device; and what a call answers that ends so, which is the sticky error once there
// is one.
int current_device();
cudaError_t answer(cudaError_t error);

}  // namespace cuda_on_cpu
