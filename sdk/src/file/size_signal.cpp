// Blocked for the time of a write, and taken from the thread before the host's own mask is back.
#include "sdk/src/file/size_signal.h"

#include <time.h>

#include <cerrno>

namespace octavo {
namespace {

sigset_t only_this() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() {
  sigset_t set;
  return sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 1;
}

}  // namespace

HeldSizeSignal::HeldSizeSignal() : was_pending_(is_pending()) {
  const sigset_t set = only_this();
  pthread_sigmask(SIG_BLOCK, &set, &outer_);
}

HeldSizeSignal::~HeldSizeSignal() {
  const int reason = errno;
  const sigset_t set = only_this();
  const timespec now{};
  while (!was_pending_ && is_pending()) sigtimedwait(&set, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &outer_, nullptr);
  errno = reason;
}

}  // namespace octavo
