// octavo_threads: a small fixed pool as octavo.parallel/1 for hosts that have none.
//
// A call hands out chunks by an atomic counter; which thread runs which chunk is not determined,
// and need not be, since kernels give the same bits for every division of their range.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "octavo/octavo.h"
#include "sdk/src/base/fork.h"
#include "sdk/src/base/handles.h"

struct octavo_threads {
 public:
  explicit octavo_threads(uint32_t threads) {
    parallel_.size = sizeof(parallel_);
    parallel_.kind = OCTAVO_KIND_PARALLEL;
    parallel_.ctx = this;
    parallel_.parallel_for = [](void *ctx, int64_t begin, int64_t end, int64_t grain, Body body,
                                void *arg) -> octavo_status {
      if (body == nullptr) return OCTAVO_INVALID;
      static_cast<octavo_threads *>(ctx)->run(begin, end, std::max<int64_t>(grain, 1), body, arg);
      return OCTAVO_OK;
    };
    try {
      for (uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~octavo_threads() { stop(); }

  const octavo_parallel *parallel() const { return &parallel_; }
  // Whether the workers are threads of another process.
  bool is_inherited() const { return made_at_ != octavo::fork_count(); }

 private:
  using Body = void (*)(void *arg, int64_t begin, int64_t end);
  struct Job {
    int64_t end = 0;
    int64_t chunk = 1;
    Body body = nullptr;
    void *arg = nullptr;
  };

  void run(int64_t begin, int64_t end, int64_t grain, Body body, void *arg) {
    if (end <= begin) return;
    if (is_inherited()) {
      body(arg, begin, end);
      return;
    }
    const int64_t threads = static_cast<int64_t>(workers_.size()) + 1;
    // Four chunks a thread even out unequal progress without making chunks tiny.
    const int64_t chunk = std::max(grain, (end - begin + 4 * threads - 1) / (4 * threads));
    // One caller at a time has the workers; a second one, or a small range, runs where it is.
    std::unique_lock<std::mutex> alone(caller_, std::try_to_lock);
    if (threads == 1 || end - begin <= chunk || !alone.owns_lock()) {
      body(arg, begin, end);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      job_ = {end, chunk, body, arg};
      next_.store(begin, std::memory_order_relaxed);
      open_ = true;
      ++generation_;
    }
    wake_.notify_all();
    take_chunks(job_);
    // A worker that has not woken yet is not waited for: waking takes longer than a short job.
    std::unique_lock lock(mutex_);
    open_ = false;
    done_.wait(lock, [this] { return busy_ == 0; });
  }

  void take_chunks(const Job &job) {
    for (;;) {
      const int64_t begin = next_.fetch_add(job.chunk, std::memory_order_relaxed);
      if (begin >= job.end) return;
      job.body(job.arg, begin, std::min(begin + job.chunk, job.end));
    }
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || (open_ && generation_ != seen); });
        if (stopping_) return;
        seen = generation_;
        job = job_;
        ++busy_;
      }
      take_chunks(job);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread &t : workers_) t.join();
    workers_.clear();
  }

  octavo_parallel parallel_{};
  std::vector<std::thread> workers_;
  std::mutex caller_;
  std::mutex mutex_;  // guards job_, open_, busy_, generation_, stopping_
  std::condition_variable wake_;
  std::condition_variable done_;
  Job job_;
  bool open_ = false;  // chunks of job_ may be left
  size_t busy_ = 0;    // workers on job_
  uint64_t generation_ = 0;
  bool stopping_ = false;
  std::atomic<int64_t> next_{0};
  const uint64_t made_at_ = octavo::fork_count();
};

octavo_status octavo_threads_open(uint32_t threads, octavo_threads **out) {
  if (out == nullptr || threads > 4096) return OCTAVO_INVALID;
  return octavo::guarded(nullptr, [&] {
    uint32_t count = threads;
    if (count == 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      count = sched_getaffinity(0, sizeof(set), &set) == 0
                  ? static_cast<uint32_t>(CPU_COUNT(&set))
                  : std::max(1u, std::thread::hardware_concurrency());
    }
    *out = octavo::open_handle(std::make_unique<octavo_threads>(count));
  });
}

const octavo_parallel *octavo_threads_parallel(const octavo_threads *t) {
  const octavo_threads *threads = octavo::find_handle(t);
  return threads == nullptr ? nullptr : threads->parallel();
}

void octavo_threads_close(octavo_threads *t) {
  octavo::close_or_retire(t);
}
