// What a child of fork may still rely on: which of this process's objects were made before the
// fork, and a lock that does not wait for a thread that the child does not have.
#pragma once

#include <atomic>
#include <cstdint>

namespace octavo {

// The number of forks between the first process and this one; equal in all threads of a process.
uint64_t fork_count();

// Mutual exclusion between threads, with lock and unlock as std::mutex has them. In a child of fork
// whose parent held it in another thread, lock throws Failure (OCTAVO_WRONG_STATE) instead of
// waiting without end: what it guards is half changed there.
class ForkLock {
 public:
  // `work`: what is done under the lock, for the message: "loaded a plugin".
  explicit constexpr ForkLock(const char *work) : work_(work) {}
  ForkLock(const ForkLock &) = delete;
  ForkLock &operator=(const ForkLock &) = delete;
  void lock();
  void unlock();

 private:
  const char *work_;
  std::atomic<uint64_t> holder_{0};  // 0: free; else 1 + fork_count() of the holder's process
};

}  // namespace octavo
