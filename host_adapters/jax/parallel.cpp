// The caller takes parts too and waits for those alone that another thread has begun, so calls that
// fill all threads of the pool cannot wait for each other.
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <memory>

namespace octavo::jax {
namespace {

thread_local const Pool *current = nullptr;

struct Work {
  int64_t begin, end, part, parts;
  void (*body)(void *, int64_t, int64_t);
  void *arg;
  std::atomic<int64_t> next{0}, done{0};

  void run() {
    for (int64_t i = next.fetch_add(1); i < parts; i = next.fetch_add(1)) {
      const int64_t first = begin + i * part;
      body(arg, first, std::min(first + part, end));
      if (done.fetch_add(1) + 1 == parts) done.notify_all();
    }
  }
};

octavo_status parallel_for(void *, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(void *arg, int64_t begin, int64_t end), void *arg) {
  if (begin >= end) return OCTAVO_OK;
  const int64_t threads = current == nullptr ? 1 : current->threads;
  const int64_t count = end - begin;
  const int64_t part = std::max({grain, int64_t{1}, (count + threads - 1) / threads});
  const int64_t parts = (count + part - 1) / part;
  if (parts == 1) {
    body(arg, begin, end);
    return OCTAVO_OK;
  }
  try {
    const auto work = std::make_shared<Work>();
    work->begin = begin, work->end = end, work->part = part, work->parts = parts;
    work->body = body, work->arg = arg;
    for (int64_t i = 1; i < parts; ++i) current->schedule([work] { work->run(); });
    work->run();
    for (int64_t d = work->done; d != parts; d = work->done) work->done.wait(d);
  } catch (const std::bad_alloc &) {
    return OCTAVO_NO_RESOURCE;
  }
  return OCTAVO_OK;
}

const octavo_parallel table = {sizeof(octavo_parallel), OCTAVO_KIND_PARALLEL, nullptr,
                               parallel_for};

}  // namespace

UsePool::UsePool(const Pool &pool) {
  current = &pool;
}
UsePool::~UsePool() {
  current = nullptr;
}

const octavo_parallel *parallel() {
  return &table;
}

}  // namespace octavo::jax
