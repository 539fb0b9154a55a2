// What ThreadSanitizer learns of the threads of device code, which it does not see: each is a
// logical thread, ordered after another by nothing but signals. In a program without it all of this
// does nothing.
#pragma once

extern "C" {
[[gnu::weak]] void *__tsan_get_current_fiber();
[[gnu::weak]] void *__tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_switch_to_fiber(void *fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void *address);
[[gnu::weak]] void __tsan_release(void *address);
}

namespace cuda_on_cpu {

inline bool has_race_detector() {
  return __tsan_create_fiber != nullptr;
}

// One that no block of the running launch has had before: what one thread does in two blocks would
// be ordered.
class LogicalThread {
 public:
  LogicalThread();
  // That of the thread of the CPU.
  static LogicalThread current();
  ~LogicalThread();
  LogicalThread(const LogicalThread &) = delete;
  LogicalThread &operator=(const LogicalThread &) = delete;
  // Behind a launch: those of its blocks may come again.
  static void reuse();

  // What follows is of this thread; it is ordered after nothing of others.
  void enter() const {
    constexpr unsigned kWithoutOrder = 1;
    if (fiber_ != nullptr) __tsan_switch_to_fiber(fiber_, kWithoutOrder);
  }

 private:
  LogicalThread(void *fiber, bool is_own) : fiber_(fiber), is_own_(is_own) {}
  void *fiber_;
  bool is_own_;
};

// By the running thread: all that it did before is visible to whoever waits for the signal later.
inline void signal(char *at) {
  if (has_race_detector()) __tsan_release(at);
}
inline void wait_for(char *at) {
  if (has_race_detector()) __tsan_acquire(at);
}

}  // namespace cuda_on_cpu
