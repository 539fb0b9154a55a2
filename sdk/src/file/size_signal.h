// SIGXFSZ, which the kernel sends for a write beyond the largest file that a process may have, and
// which ends a process that did not ask for it.
#pragma once

#include <signal.h>

namespace octavo {

// Keeps it from the calling thread. A write beyond the limit answers EFBIG and nothing else.
class HeldSizeSignal {
 public:
  HeldSizeSignal();
  // Leaves errno as it is.
  ~HeldSizeSignal();
  HeldSizeSignal(const HeldSizeSignal &) = delete;
  HeldSizeSignal &operator=(const HeldSizeSignal &) = delete;

 private:
  sigset_t outer_;            // what the thread blocked before
  bool was_pending_ = false;  // the host's own one, which stays
};

}  // namespace octavo
