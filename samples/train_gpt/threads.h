// The thread pool of the program, shared by its own loops and by Octavo's CPU kernels.
//
// A loop body may write only what belongs to its indices and may not depend on how the range was
// cut: that is why one thread and two threads give equal bits.
#ifndef TRAIN_GPT_THREADS_H
#define TRAIN_GPT_THREADS_H

#include <octavo/octavo.h>

#include <stdexcept>
#include <type_traits>

namespace gpt {

class Threads {
 public:
  // `count` includes the calling thread; 0: one per core that this process may use.
  explicit Threads(uint32_t count) {
    if (octavo_threads_open(count, &threads_) != OCTAVO_OK) {
      throw std::runtime_error("the thread pool could not be started");
    }
  }
  ~Threads() { octavo_threads_close(threads_); }
  Threads(const Threads &) = delete;
  Threads &operator=(const Threads &) = delete;

  const octavo_parallel *table() const { return octavo_threads_parallel(threads_); }

  // Calls body(begin, end) for disjoint ranges that cover [0, count).
  template <typename Body>
  void for_ranges(int64_t count, int64_t grain, Body &&body) const {
    using Plain = std::remove_reference_t<Body>;
    const octavo_parallel *p = table();
    auto call = [](void *arg, int64_t begin, int64_t end) {
      (*static_cast<Plain *>(arg))(begin, end);
    };
    if (p->parallel_for(p->ctx, 0, count, grain, call, &body) != OCTAVO_OK) {
      throw std::runtime_error("the thread pool refused a loop");
    }
  }

 private:
  octavo_threads *threads_ = nullptr;
};

}  // namespace gpt

#endif
