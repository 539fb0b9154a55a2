/* Faults of device code that its execution by the CPU must find, planted in small kernels. */
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/target.cuh"
#include "tests/support/cuda_on_cpu/runtime.h"

#ifdef __SANITIZE_THREAD__
namespace {
int reports = 0;
}
#define OCTAVO_TSAN_HOOK extern "C" __attribute__((visibility("default"), no_sanitize_thread))
/* A race is counted, and the program goes on. */
OCTAVO_TSAN_HOOK const char *__tsan_default_options();
const char *__tsan_default_options() {
  return "exitcode=0 suppress_equal_stacks=0 suppress_equal_addresses=0";
}
OCTAVO_TSAN_HOOK void __tsan_on_report(void *);
void __tsan_on_report(void *) {
  ++reports;
}
#endif

namespace octavo::cuda {
namespace {

using Order = cuda_on_cpu::Script::Order;

template <typename... Wanted, typename... Given>
cudaError_t launch(unsigned blocks, unsigned threads, void (*kernel)(Wanted...), Given... given) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  if (const cudaError_t error = cudaLaunchKernelEx(&config, kernel, Wanted(given)...);
      error != cudaSuccess)
    return error;
  return cudaDeviceSynchronize();
}

class CudaExecutor : public testing::Test {
 protected:
  CudaExecutor() { cuda_on_cpu::reset(); }
  ~CudaExecutor() override { cuda_on_cpu::reset(); }
};

/* ---- alignment ---- */

template <typename In>
void read_kernel(TensorSource<In> source, float *out) {
  float values[kQuad];
  source.quad(0, 0, values);
  *out = values[0];
}
template <typename Out>
void write_kernel(Target<Out> target) {
  const Codes<Out, kQuad> codes[1] = {};
  target.store(0, 0, codes);
}
/* 16 bytes at a time. */
void copy_kernel(const uint8_t *from, uint8_t *to) {
  WidePack<E4m3>::load(from).store(to);
}
void float_kernel(const float *in, float *out) {
  *out = *in + 1.0f;
}

template <typename T>
T *moved(std::vector<uint64_t> &memory, size_t bytes) {
  return reinterpret_cast<T *>(reinterpret_cast<char *>(memory.data()) + bytes);
}

/* What the host says of a tensor is wrong on purpose: is_aligned, at an address that is not. */
TEST_F(CudaExecutor, a_pack_read_at_a_wrong_address_fails) {
  std::vector<uint64_t> memory(8);
  float out = 0;
  for (const size_t at : {0, 4, 2, 1}) {
    cuda_on_cpu::reset();
    auto source =
        tensor_source<E4m3>({moved<uint8_t>(memory, at), 1, 4, 4, OCTAVO_E4M3FN, 0}, nullptr);
    source.is_aligned = true;
    EXPECT_EQ(launch(1, 1, read_kernel<E4m3>, source, &out),
              at % 4 == 0 ? cudaSuccess : cudaErrorMisalignedAddress);
    EXPECT_EQ(cudaPeekAtLastError(), at % 4 == 0 ? cudaSuccess : cudaErrorMisalignedAddress);
    EXPECT_EQ(launch(1, 1, float_kernel, moved<float>(memory, 0), &out), cudaPeekAtLastError())
        << "it stays";
  }
}

TEST_F(CudaExecutor, a_pack_written_at_a_wrong_address_fails) {
  std::vector<uint64_t> memory(8);
  for (const size_t at : {0, 8, 4, 2}) {
    cuda_on_cpu::reset();
    const octavo_tensor tensor = {moved<uint16_t>(memory, at), 1, 4, 4, OCTAVO_F16, 0};
    Target<F16> target = target_of<F16>(&tensor);
    target.is_aligned = true;
    EXPECT_EQ(launch(1, 1, write_kernel<F16>, target),
              at % 8 == 0 ? cudaSuccess : cudaErrorMisalignedAddress);
  }
}

TEST_F(CudaExecutor, sixteen_bytes_at_a_wrong_address_fail) {
  alignas(16) uint8_t memory[64] = {};
  for (const size_t from : {0, 8}) {
    for (const size_t to : {32, 36}) {
      cuda_on_cpu::reset();
      EXPECT_EQ(launch(1, 1, copy_kernel, memory + from, memory + to),
                from == 0 && to == 32 ? cudaSuccess : cudaErrorMisalignedAddress);
    }
  }
}

TEST_F(CudaExecutor, a_number_at_a_wrong_address_fails) {
  std::vector<uint64_t> memory(8);
  for (const bool at_once : {false, true}) {
    cuda_on_cpu::reset();
    cuda_on_cpu::script().blocks_at_once = at_once;
    EXPECT_EQ(launch(2, 1, float_kernel, moved<float>(memory, 2), moved<float>(memory, 8)),
              cudaErrorMisalignedAddress);
  }
}

/* ---- the order of threads ---- */

/* Without the barrier that `has_barrier` is about, thread 0 may be late for its neighbours. */
void turned_kernel(const int *in, int *out, bool has_barrier) {
  __shared__ int shared[128];
  shared[threadIdx.x] = in[threadIdx.x];
  if (has_barrier) __syncthreads();
  out[threadIdx.x] = shared[127 - threadIdx.x];
}

/* Whether the kernel turns its input over. */
bool turns(bool has_barrier, uint64_t salt) {
  std::vector<int> in(128), out(128);
  for (int i = 0; i < 128; ++i) in[static_cast<size_t>(i)] = i + static_cast<int>(salt) * 1000;
  EXPECT_EQ(launch(1, 128, turned_kernel, in.data(), out.data(), has_barrier), cudaSuccess);
  return std::equal(in.rbegin(), in.rend(), out.begin());
}

TEST_F(CudaExecutor, a_missing_barrier_shows_in_the_unfair_order) {
  cuda_on_cpu::script().order = Order::kUnfair;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    cuda_on_cpu::script().seed = seed;
    EXPECT_TRUE(turns(true, seed));
#ifndef __SANITIZE_THREAD__
    EXPECT_FALSE(turns(false, seed + 100));
#endif
  }
}

void late_kernel(int *out) {
  if (threadIdx.x == 0) return;
  __syncthreads();
  *out = 1;
}
TEST_F(CudaExecutor, a_barrier_that_not_all_threads_reach_ends_the_process) {
  int out = 0;
  EXPECT_DEATH(launch(1, 64, late_kernel, &out), "hangs: thread .* waits for __syncthreads");
}

/* ---- shared memory ---- */

/* Counts in memory that nobody may have cleared. */
void uncleared_kernel(int *count, bool clears) {
  __shared__ int shared;
  if (clears) shared = 0;
  *count = ++shared;
}
/* One element of many is written. */
void unwritten_kernel(float *out) {
  __shared__ float shared[40];
  if (threadIdx.x == 3) shared[3] = 1.0f;
  out[blockIdx.x * 40 + threadIdx.x] = shared[threadIdx.x];
}

TEST_F(CudaExecutor, shared_memory_holds_nothing_of_use) {
  for (const bool at_once : {false, true}) {
    cuda_on_cpu::script().blocks_at_once = at_once;
    int count = 0;
    EXPECT_EQ(launch(1, 1, uncleared_kernel, &count, true), cudaSuccess);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(launch(1, 1, uncleared_kernel, &count, false), cudaSuccess);
    EXPECT_GT(count, 1 << 30);
    std::vector<float> out(80);
    EXPECT_EQ(launch(2, 40, unwritten_kernel, out.data()), cudaSuccess);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(is_nan(out[i]), i % 40 != 3) << i;
  }
}

/* ---- blocks at once ---- */

/* Every block waits for all others: it ends only where they are alive at once. */
void meeting_kernel(int *arrived) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < static_cast<int>(gridDim.x)) std::this_thread::yield();
  }
  __syncthreads(); /* superfluous, as barriers.py must say */
}

TEST_F(CudaExecutor, blocks_at_once_are_alive_at_once) {
  cuda_on_cpu::script().blocks_at_once = true;
  int arrived = 0;
  EXPECT_EQ(launch(5, 64, meeting_kernel, &arrived), cudaSuccess);
  EXPECT_EQ(arrived, 5);
}

/* Each block has shared memory of its own, and atomic sums are exact. */
void counting_kernel(int *sum, unsigned turns) {
  __shared__ int shared;
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  for (unsigned i = 0; i < turns; ++i) {
    atomicAdd(&shared, 1);
    atomicAdd(sum, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum + 1, shared);
}

TEST_F(CudaExecutor, atomic_sums_of_blocks_at_once_are_exact) {
  cuda_on_cpu::script().blocks_at_once = true;
  for (const Order order : {Order::kForward, Order::kUnfair}) {
    cuda_on_cpu::script().order = order;
    std::array<int, 2> sums = {};
    EXPECT_EQ(launch(8, 64, counting_kernel, sums.data(), 50u), cudaSuccess);
    EXPECT_EQ(sums[0], 8 * 64 * 50);
    EXPECT_EQ(sums[1], 8 * 64 * 50);
  }
}

/* ---- races, which ThreadSanitizer finds ---- */
#ifdef __SANITIZE_THREAD__

/* A sum of all blocks; without `is_atomic` of the threads that ran last. */
void sum_kernel(int *sum, bool is_atomic) {
  if (is_atomic)
    atomicAdd(sum, 1);
  else
    *sum += 1;
}

/* Each block writes its number, then reads that of its neighbour. */
void neighbour_kernel(int *numbers, int *out, bool reads_neighbour) {
  if (threadIdx.x != 0) return;
  numbers[blockIdx.x] = static_cast<int>(blockIdx.x);
  const unsigned from = reads_neighbour ? (blockIdx.x + 1) % gridDim.x : blockIdx.x;
  out[blockIdx.x] = numbers[from];
}

/* The last block adds what all have left; without `has_fences` nothing orders its reads. */
void last_block_kernel(int *parts, unsigned *arrived, int *sum, bool has_fences) {
  if (threadIdx.x != 0) return;
  parts[blockIdx.x] = 1;
  if (has_fences) __threadfence();
  if (atomicAdd(arrived, 1u) != gridDim.x - 1) return;
  if (has_fences) __threadfence();
  *sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += parts[i];
}

/* Lane 0 of every warp reads what lane 1 wrote. */
void warp_kernel(int *out, int order) {
  __shared__ int shared[64];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (order == 1) __shfl_sync(kAllLanes, 0, 0); /* orders no memory */
  if (order == 2) __syncwarp();
  if (threadIdx.x % kWarp == 0) out[threadIdx.x / kWarp] = shared[threadIdx.x + 1];
}

/* How many races a launch has. */
template <typename... Wanted, typename... Given>
int races(unsigned blocks, unsigned threads, void (*kernel)(Wanted...), Given... given) {
  reports = 0;
  cuda_on_cpu::script().blocks_at_once = true;
  EXPECT_EQ(launch(blocks, threads, kernel, given...), cudaSuccess);
  return reports;
}

TEST_F(CudaExecutor, race_of_plain_sums_of_blocks) {
  int sum = 0;
  EXPECT_EQ(races(4, 1, sum_kernel, &sum, true), 0);
  EXPECT_EQ(sum, 4);
  EXPECT_GT(races(4, 1, sum_kernel, &sum, false), 0);
}

TEST_F(CudaExecutor, race_of_plain_sums_in_a_warp) {
  int sum = 0;
  EXPECT_EQ(races(1, 32, sum_kernel, &sum, true), 0);
  EXPECT_GT(races(1, 32, sum_kernel, &sum, false), 0);
}

TEST_F(CudaExecutor, race_of_a_missing_barrier) {
  std::vector<int> in(128), out(128);
  for (const Order order : {Order::kForward, Order::kUnfair}) {
    cuda_on_cpu::script().order = order;
    EXPECT_EQ(races(1, 128, turned_kernel, in.data(), out.data(), true), 0);
    EXPECT_GT(races(1, 128, turned_kernel, in.data(), out.data(), false), 0);
  }
}

TEST_F(CudaExecutor, race_of_a_block_that_reads_what_another_writes) {
  std::vector<int> numbers(4), out(4);
  EXPECT_EQ(races(4, 32, neighbour_kernel, numbers.data(), out.data(), false), 0);
  EXPECT_GT(races(4, 32, neighbour_kernel, numbers.data(), out.data(), true), 0);
}

TEST_F(CudaExecutor, race_of_a_last_block_without_fences) {
  for (const bool has_fences : {true, false}) {
    std::vector<int> parts(4);
    unsigned arrived = 0;
    int sum = 0;
    const int found = races(4, 32, last_block_kernel, parts.data(), &arrived, &sum, has_fences);
    EXPECT_EQ(found == 0, has_fences);
    EXPECT_EQ(sum, 4);
  }
}

TEST_F(CudaExecutor, race_within_a_warp) {
  std::vector<int> out(2);
  EXPECT_GT(races(1, 64, warp_kernel, out.data(), 0), 0);
  EXPECT_GT(races(1, 64, warp_kernel, out.data(), 1), 0);
  EXPECT_EQ(races(1, 64, warp_kernel, out.data(), 2), 0);
}

#endif

}  // namespace
}  // namespace octavo::cuda
