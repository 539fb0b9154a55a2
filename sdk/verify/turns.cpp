// The turns: one thread runs, the other waits at the border of a kernel.
#include "turns.h"

#include <chrono>

#include "matrix.h"

namespace octavo::conformance {
namespace {

constexpr std::chrono::seconds kPatience{3};
thread_local int this_thread = -1;

}  // namespace

void Turns::wait(std::unique_lock<std::mutex> &lock, int thread) {
  changed_.notify_all();
  const auto is_next = [&] {
    return free_ || (begun_ == 2 && (turn_ == thread || ended_[1 - thread]));
  };
  if (!changed_.wait_for(lock, kPatience, is_next)) free_ = true;
}

void Turns::begin(int thread) {
  std::unique_lock<std::mutex> lock(mutex_);
  this_thread = thread;
  ++begun_;
  wait(lock, thread);
}

void Turns::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ended_[this_thread] = true;
  changed_.notify_all();
}

void Turns::pass() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (free_ || this_thread < 0) return;
  if (seed_ == 0 || mix(seed_, passes_++) % 2 == 0) turn_ = 1 - this_thread;
  wait(lock, this_thread);
}

}  // namespace octavo::conformance
