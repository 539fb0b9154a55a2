// The fence: an arena that only kernels can open, so that a host read of slot memory is caught.
//
// While the fence is armed, every access to the arena outside of a kernel faults. The handler notes
// the address, opens the arena for the rest of the verb and lets the access go on: one run reports
// the first violation of every verb, and nothing has to be unwound through the backend.
#pragma once

#include <csignal>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "arena.h"

namespace octavo::conformance {

class Fence {
 public:
  // Only one fence exists at a time.
  explicit Fence(Arena &arena);
  ~Fence();
  Fence(const Fence &) = delete;
  Fence &operator=(const Fence &) = delete;

  void arm();
  // Opens the arena; the offset of the first forbidden access since arm, if there was one.
  std::optional<uint64_t> disarm();

  // Around every kernel, on any thread; nests.
  void enter();
  void leave();

  // For the signal handler: true when the fault was this fence's and the access may go on.
  bool absorb(const void *address);

 private:
  void protect(int protection);

  Arena &arena_;
  std::mutex mutex_;
  int depth_ = 0;  // kernels that run now
  bool armed_ = false;
  std::atomic<bool> breached_{false};
  std::atomic<uint64_t> first_{0};
  struct sigaction previous_ {};
};

}  // namespace octavo::conformance
