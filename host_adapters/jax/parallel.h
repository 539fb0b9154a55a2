// octavo.parallel/1 on the thread pool of the XLA call that this thread runs.
#pragma once

#include <functional>

#include "octavo/host.h"

namespace octavo::jax {

// A pool that takes tasks; `threads` 1: nothing runs but the caller.
struct Pool {
  int64_t threads = 1;
  std::function<void(std::function<void()>)> schedule;
};

// The pool of this thread as long as the object lives; `pool` must outlive it.
class UsePool {
 public:
  explicit UsePool(const Pool &pool);
  ~UsePool();
  UsePool(const UsePool &) = delete;
  UsePool &operator=(const UsePool &) = delete;
};

const octavo_parallel *parallel();

}  // namespace octavo::jax
