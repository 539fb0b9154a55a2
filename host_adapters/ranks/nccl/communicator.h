/* One rank's communicator: its NCCL handle, the first failure, and the thread that watches.
 *
 * Every call of NCCL but one is made under `mutex_`, and none blocks there, since
 * the communicator is a non-blocking one: an answer "in progress" is waited for with the lock
 * free. The exception is ncclCommAbort when a call does not come back after the deadline.
 */
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "host_adapters/ranks/nccl/library.h"
#include "host_adapters/ranks/nccl/octavo_nccl.h"
#include "host_adapters/ranks/nccl/pending.h"
#include "kernels/check/collective.h"
#include "kernels/cuda/device_scope.h"

namespace octavo::cuda::nccl {

constexpr uint32_t kMostRanks = 4096;
using Call = CollectiveCall;

class Communicator {
 public:
  explicit Communicator(const octavo_nccl_desc &desc);
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  /* communicator.cpp. close waits for what is pending. */
  octavo_status open(const octavo_nccl_desc &desc);
  void close();

  /* operations.cpp */
  octavo_status run(const Call &call);
  octavo_status broadcast(uint32_t root, void *data, uint64_t bytes, void *stream);

  /* host_memory.cpp */
  octavo_status run_on_host(const Call &call);
  octavo_status broadcast_on_host(uint32_t root, void *data, uint64_t bytes);

  /* failure.cpp */
  octavo_status check();
  void abort();
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  /* `fate`: "not started", "given up". */
  octavo_status refuse_after_failure(const char *verb, const char *fate = "not started");

  uint32_t world() const { return world_; }
  const Caller &caller() const { return caller_; }
  bool is_inherited() const; /* by a child of fork */

 private:
  friend class Operation;
  using Lock = std::unique_lock<std::mutex>;

  /* failure.cpp. The first failure is kept and reported to the host, later ones are not; whichever
   * it is, the communicator is aborted, and `status` comes back. */
  octavo_status fail(octavo_status status, const char *format, ...)
      __attribute__((format(printf, 3, 4)));
  octavo_status fail_nccl(const char *verb, const char *function, Result result);
  octavo_status fail_cuda(const char *verb, cudaError_t error);
  octavo_status fail_deadline(const char *verb, uint64_t bytes);
  void abort_own();

  /* Makes one call of NCCL, or one group, and waits while it is in progress. `verb` and `bytes`
   * are for texts; `function` is NCCL's. */
  template <typename Body>
  octavo_status call(const char *verb, const char *function, uint64_t bytes, Body &&body);
  octavo_status wait_until_done(Lock &lock, const char *verb, const char *function, uint64_t bytes,
                                Result result);

  /* communicator.cpp */
  octavo_status make(const char *verb, const octavo_nccl_id &id);
  octavo_status compare_scratch(const char *verb);
  octavo_status exchange_scratch(const char *verb, cudaStream_t stream, uint64_t *all);
  octavo_status wait_for_pending(const char *verb);
  octavo_status end_own();

  /* host_memory.cpp */
  struct Staged {
    void *data = nullptr;
    uint64_t bytes = 0;
    octavo_status grow(uint64_t wanted);
  };
  template <typename Body>
  octavo_status stage(const char *verb, const void *send, uint64_t send_bytes, void *recv,
                      uint64_t recv_bytes, Body &&body);
  void release_staged();

  /* watch.cpp */
  void start_watching();
  void watch();
  void look();

  Caller caller_;
  const Functions *nccl_ = nullptr;
  uint32_t world_ = 0;
  uint32_t rank_ = 0;
  int device_ = 0;
  unsigned blocks_ = 1; /* of one launch */
  Clock::duration deadline_{};
  uint64_t scratch_bytes_ = 0;
  float *scratch_ = nullptr; /* on the device */
  Staged staged_[2];         /* there, too: what is sent and received for CPU memory */
  cudaStream_t stream_ = nullptr;
  const pid_t process_;

  std::mutex mutex_; /* guards pending_ and the calls of NCCL */
  Pending pending_;
  std::atomic<Comm *> comm_{nullptr};
  /* Of a call of NCCL that has not come back; 0: none. */
  std::atomic<Clock::rep> call_began_{0};
  std::atomic<const char *> call_verb_{""};

  std::mutex failure_mutex_; /* guards failure_ */
  std::string failure_;
  std::atomic<bool> failed_{true};

  std::mutex watch_mutex_; /* guards stops_ */
  std::condition_variable wake_;
  bool stops_ = false;
  std::thread watcher_;
};

template <typename Body>
octavo_status Communicator::call(const char *verb, const char *function, uint64_t bytes,
                                 Body &&body) {
  Lock lock(mutex_);
  Comm *comm = comm_.load(std::memory_order_acquire);
  if (has_failed() || comm == nullptr) {
    lock.unlock();
    return refuse_after_failure(verb);
  }
  call_verb_.store(verb, std::memory_order_relaxed);
  call_began_.store(Clock::now().time_since_epoch().count(), std::memory_order_release);
  const Result result = body(*nccl_, comm);
  call_began_.store(0, std::memory_order_release);
  if (result == kSuccess && !has_failed()) return OCTAVO_OK;
  return wait_until_done(lock, verb, function, bytes, result);
}

}  // namespace octavo::cuda::nccl
