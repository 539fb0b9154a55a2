/* Operations that are enqueued and may not have ended: events after them, and what to call them.
 *
 * Used under the lock of its communicator. */
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdint>

namespace octavo::cuda::nccl {

using Clock = std::chrono::steady_clock;

class Pending {
 public:
  /* What an operation is, for texts. */
  struct Operation {
    const char *verb = "";
    uint64_t bytes = 0;
  };

  cudaError_t open();
  void close();

  /* Behind the operation that was enqueued last. When all events wait, the newest one moves on to
   * this operation, too. */
  cudaError_t add(const Operation &operation, cudaStream_t stream);
  /* Lets `stream` wait for everything before, where that was enqueued on another one. */
  cudaError_t order(cudaStream_t stream);
  /* Forgets what has ended; the time without an end begins anew with each. */
  cudaError_t look();

  bool empty() const { return count_ == 0; }
  const Operation &oldest() const { return entries_[first_].operation; }
  Clock::duration stalled() const { return Clock::now() - since_; }

 private:
  struct Entry {
    cudaEvent_t event = nullptr;
    Operation operation;
  };

  Entry &newest() { return entries_[(first_ + count_ - 1) % entries_.size()]; }

  std::array<Entry, 32> entries_;
  size_t first_ = 0;
  size_t count_ = 0;
  Clock::time_point since_; /* the oldest was enqueued, or the one before it ended */
  cudaEvent_t last_ = nullptr;
  unsigned long long last_stream_ = 0; /* its id: a handle may come again for another stream */
};

}  // namespace octavo::cuda::nccl
