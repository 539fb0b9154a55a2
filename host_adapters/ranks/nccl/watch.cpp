/* The thread that finds asynchronous errors and missed deadlines, off the calls of the host. */
#include <algorithm>
#include <csignal>

#include "host_adapters/ranks/nccl/communicator.h"

namespace octavo::cuda::nccl {

/* The host's signals are the host's: this thread takes none. */
void Communicator::start_watching() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Communicator::watch() {
  const DeviceScope device(device_);
  /* A deadline is noticed within an eighth of it. */
  const auto period = std::max<Clock::duration>(
      std::min<Clock::duration>(deadline_ / 8, std::chrono::milliseconds(100)),
      std::chrono::milliseconds(1));
  std::unique_lock watching(watch_mutex_);
  while (!wake_.wait_for(watching, period, [&] { return stops_; })) {
    watching.unlock();
    if (!has_failed()) {
      Lock lock(mutex_, std::try_to_lock);
      if (lock.owns_lock()) {
        look();
      } else {
        const Clock::rep began = call_began_.load(std::memory_order_acquire);
        if (began != 0 && Clock::now().time_since_epoch() - Clock::duration(began) > deadline_)
          fail_deadline(call_verb_.load(std::memory_order_relaxed), 0);
      }
    }
    watching.lock();
  }
}

/* Under mutex_. */
void Communicator::look() {
  Comm *comm = comm_.load(std::memory_order_acquire);
  if (has_failed() || comm == nullptr) return;
  Result error = kSuccess;
  const Result asked = nccl_->CommGetAsyncError(comm, &error);
  if (asked != kSuccess) error = asked;
  const char *verb = pending_.empty() ? "octavo_nccl" : pending_.oldest().verb;
  if (error != kSuccess && error != kInProgress) {
    fail_nccl(verb, "ncclCommGetAsyncError", error);
    return;
  }
  const cudaError_t ended = pending_.look();
  if (ended != cudaSuccess) {
    fail_cuda(verb, ended);
  } else if (!pending_.empty() && pending_.stalled() > deadline_) {
    fail_deadline(verb, pending_.oldest().bytes);
  }
}

}  // namespace octavo::cuda::nccl
