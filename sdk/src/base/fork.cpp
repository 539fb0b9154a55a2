// The count rises in a handler that fork itself runs in the child, so nothing asks for process ids.
#include "sdk/src/base/fork.h"

#include <pthread.h>

#include <string>

#include "sdk/src/base/failure.h"

namespace octavo {
namespace {

std::atomic<uint64_t> forks{0};

void in_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

uint64_t fork_count() {
  static const int registered = pthread_atfork(nullptr, nullptr, in_child);
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

void ForkLock::lock() {
  const uint64_t own = fork_count() + 1;
  for (;;) {
    uint64_t holder = 0;
    if (holder_.compare_exchange_strong(holder, own, std::memory_order_acquire)) return;
    if (holder != own)
      throw Failure(
          OCTAVO_WRONG_STATE, "octavo.fork",
          "expected a process that no fork interrupted, found a child of one whose other thread ",
          work_, " at that moment; fork before or after that, or start programs with posix_spawn");
    holder_.wait(holder, std::memory_order_relaxed);
  }
}

void ForkLock::unlock() {
  holder_.store(0, std::memory_order_release);
  holder_.notify_one();
}

}  // namespace octavo
