// Two threads that take turns at the borders of kernels, so that their calls interleave for
// certain.
//
// Left alone, two calls of microseconds hardly ever overlap on a busy machine, and what a backend
// keeps for both between two kernels stays unseen.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace octavo::conformance {

class Turns {
 public:
  // Who comes next is drawn from the seed; 0: the two alternate strictly.
  explicit Turns(uint64_t seed) : seed_(seed) {}

  void begin(int thread);  // 0 or 1, before the first call; waits for its turn
  void end();              // after the last call
  // Before and after each kernel: waits for its turn. A backend that holds a lock while the other
  // thread waits for it gets no more turns after a while: that is legal, if slow.
  void pass();

 private:
  void wait(std::unique_lock<std::mutex> &lock, int thread);

  const uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t passes_ = 0;
  int begun_ = 0, turn_ = 0;
  bool ended_[2] = {};
  bool free_ = false;
};

}  // namespace octavo::conformance
