/* The first failure of a communicator: kept, reported to the host, and what every later call
 * answers.
 */
#include <cstdarg>
#include <cstdio>

#include "host_adapters/ranks/nccl/communicator.h"

namespace octavo::cuda::nccl {
namespace {

constexpr auto kPoll = std::chrono::microseconds(50);

long long milliseconds(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

}  // namespace

octavo_status Communicator::fail(octavo_status status, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  bool is_first = false;
  {
    const std::lock_guard lock(failure_mutex_);
    is_first = !has_failed();
    if (is_first) {
      failure_ = text;
      failed_.store(true, std::memory_order_release);
    }
  }
  if (is_first) report_error(caller_, status, "%s", text);
  abort_own();
  return status;
}

/* Whoever takes the handle aborts it: once. */
void Communicator::abort_own() {
  Comm *comm = comm_.exchange(nullptr);
  if (comm != nullptr) nccl_->CommAbort(comm);
}

octavo_status Communicator::refuse_after_failure(const char *verb, const char *fate) {
  std::string first;
  {
    const std::lock_guard lock(failure_mutex_);
    first = failure_;
  }
  return report_error(
      caller_, OCTAVO_FAILED_DEVICE,
      "%s: %s, since the communicator of rank %u of %u has failed (%s); close it, and open one on "
      "every rank with a new id",
      verb, fate, rank_, world_, first.c_str());
}

octavo_status Communicator::fail_nccl(const char *verb, const char *function, Result result) {
  /* NCCL keeps one text for the process, and looks at no communicator for it. */
  const char *detail = nccl_->GetLastError(nullptr);
  const char *meaning = nccl_->GetErrorString(result);
  return fail(status_of(result), "%s: rank %u of %u: %s answered %s: %s%s%s%s; %s", verb, rank_,
              world_, function, name_of(result), meaning == nullptr ? "no text" : meaning,
              detail == nullptr || *detail == 0 ? "" : " (",
              detail == nullptr || *detail == 0 ? "" : detail,
              detail == nullptr || *detail == 0 ? "" : ")",
              result == kRemoteError
                  ? "another rank is gone: end it or start it anew, then open all of them again"
                  : "NCCL_DEBUG=WARN lets NCCL say more");
}

octavo_status Communicator::fail_cuda(const char *verb, cudaError_t error) {
  cudaGetLastError(); /* one that is not lasting is forgotten */
  return fail(error == cudaErrorMemoryAllocation ? OCTAVO_NO_RESOURCE : OCTAVO_FAILED_DEVICE,
              "%s: rank %u of %u: CUDA answered %s: %s on device %d", verb, rank_, world_,
              cudaGetErrorName(error), cudaGetErrorString(error), device_);
}

octavo_status Communicator::fail_deadline(const char *verb, uint64_t bytes) {
  char size[40] = "";
  if (bytes != 0)
    std::snprintf(size, sizeof(size), " of %llu bytes", static_cast<unsigned long long>(bytes));
  return fail(
      OCTAVO_FAILED_DEVICE,
      "%s%s: rank %u of %u: expected an end within %lld ms, found it pending: another rank "
      "is gone, or its calls differ from this rank's; end the job or open the communicators "
      "again",
      verb, size, rank_, world_, milliseconds(deadline_));
}

octavo_status Communicator::wait_until_done(Lock &lock, const char *verb, const char *function,
                                            uint64_t bytes, Result result) {
  const Clock::time_point began = Clock::now();
  while (result == kInProgress) {
    lock.unlock();
    std::this_thread::sleep_for(kPoll);
    lock.lock();
    Comm *comm = comm_.load(std::memory_order_acquire);
    if (has_failed() || comm == nullptr) break;
    const Result asked = nccl_->CommGetAsyncError(comm, &result);
    if (asked != kSuccess) result = asked;
    if (result == kInProgress && Clock::now() - began > deadline_)
      return fail_deadline(verb, bytes);
  }
  if (has_failed()) {
    /* Another thread found the failure, whose text the host has; this call ended with it. */
    lock.unlock();
    return refuse_after_failure(verb, "given up");
  }
  return result == kSuccess ? OCTAVO_OK : fail_nccl(verb, function, result);
}

octavo_status Communicator::check() {
  if (has_failed()) return refuse_after_failure("octavo_nccl_check");
  Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) look(); /* else a call is in NCCL, and asks itself */
  return has_failed() ? OCTAVO_FAILED_DEVICE : OCTAVO_OK;
}

void Communicator::abort() {
  if (has_failed()) return;
  /* Set at first, so that the thread that waits in wait_until_done leaves NCCL alone. */
  {
    const std::lock_guard lock(failure_mutex_);
    if (has_failed()) return;
    failure_ = "the host called octavo_nccl_abort";
    failed_.store(true, std::memory_order_release);
  }
  /* A call that does not come back is what an abort is to end. */
  Lock lock(mutex_, std::defer_lock);
  for (int i = 0; i < 100 && !lock.try_lock(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  abort_own();
}

}  // namespace octavo::cuda::nccl
