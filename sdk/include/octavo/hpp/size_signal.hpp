// octavo/hpp/size_signal.hpp: SIGXFSZ, which the kernel sends for a write beyond the largest file
// that a process may have (RLIMIT_FSIZE), and which ends a process that did not ask for it.
#ifndef OCTAVO_HPP_SIZE_SIGNAL_HPP
#define OCTAVO_HPP_SIZE_SIGNAL_HPP

#include <signal.h>
#include <time.h>

#include <cerrno>

namespace octavo {
inline namespace hpp {

// Keeps it from the calling thread while it lives: a write beyond the limit answers EFBIG and
// nothing else. Leaves errno, the thread's mask and a signal that the host itself waits for as they
// are.
class HeldSizeSignal {
 public:
  HeldSizeSignal() : was_pending_(is_pending()) {
    const sigset_t set = only_this();
    pthread_sigmask(SIG_BLOCK, &set, &outer_);
  }
  // Takes it from the thread before the thread's own mask is back.
  ~HeldSizeSignal() {
    const int reason = errno;
    const sigset_t set = only_this();
    const timespec now{};
    while (!was_pending_ && is_pending()) sigtimedwait(&set, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &outer_, nullptr);
    errno = reason;
  }
  HeldSizeSignal(const HeldSizeSignal &) = delete;
  HeldSizeSignal &operator=(const HeldSizeSignal &) = delete;

 private:
  static sigset_t only_this() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
  }
  static bool is_pending() {
    sigset_t set;
    return sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 1;
  }

  sigset_t outer_{};          // what the thread blocked before
  bool was_pending_ = false;  // the host's own one, which stays
};

}  // namespace hpp
}  // namespace octavo

#endif
