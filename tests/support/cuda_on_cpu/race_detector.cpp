// The logical threads of race_detector.h: to make one takes long, so they are kept. As fibers.cpp,
// this file is never instrumented, and its lock is one that ThreadSanitizer does not see: it would
// order blocks.
#include "race_detector.h"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <thread>

namespace cuda_on_cpu {
namespace {

struct Lock {
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  void lock() {
    while (busy.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { busy.clear(std::memory_order_release); }
};
Lock mutex;

// No vector, whose code would be that of another file, instrumented.
struct Fibers {
  void *all[8192];  // more than ThreadSanitizer allows
  size_t count = 0;
  void add(void *fiber) { all[count++] = fiber; }
  void *take() { return all[--count]; }
};
Fibers unused;
Fibers used;  // by blocks that have ended

void *take_fiber() {
  if (!has_race_detector()) return nullptr;
  const std::lock_guard lock(mutex);
  return unused.count == 0 ? __tsan_create_fiber(0) : unused.take();
}

}  // namespace

LogicalThread::LogicalThread() : LogicalThread(take_fiber(), true) {}

LogicalThread LogicalThread::current() {
  return {has_race_detector() ? __tsan_get_current_fiber() : nullptr, false};
}

LogicalThread::~LogicalThread() {
  if (!is_own_ || fiber_ == nullptr) return;
  const std::lock_guard lock(mutex);
  used.add(fiber_);
}

void LogicalThread::reuse() {
  const std::lock_guard lock(mutex);
  while (used.count > 0) unused.add(used.take());
}

}  // namespace cuda_on_cpu
