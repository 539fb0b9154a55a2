// The queue of queue.h over the streams of the runtime.
#include "queue.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "runtime.h"
#include "streams.h"

namespace cuda_on_cpu {

struct Mark {
  NodePtr node;
};

namespace {

StreamPtr stream_of(const Lock &lock, void *handle) {
  StreamPtr found = find_stream(lock, static_cast<cudaStream_t>(handle));
  if (found != nullptr) return found;
  std::fprintf(stderr, "cuda_on_cpu: there is no stream %p\n", handle);
  std::abort();
}

const Queue kQueue = {
    [] {
      cudaStream_t made = nullptr;
      cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
      return static_cast<void *>(made);
    },
    [](void *stream, void (*work)(void *), void *argument) {
      Lock lock(state_mutex());
      append(lock, stream_of(lock, stream), [work, argument] { work(argument); });
    },
    [](void *stream) { settle_stream(static_cast<cudaStream_t>(stream)); },
    settle,
    is_idle,
    [](uint64_t seed) {
      settle();
      script().lazy = seed;
    },
    [] { return script().lazy != 0; },
    [](void *stream) {
      Lock lock(state_mutex());
      return new Mark{append(lock, stream_of(lock, stream), nullptr)};
    },
    [](void *stream, const Mark *mark) {
      Lock lock(state_mutex());
      append(lock, stream_of(lock, stream), nullptr, {mark->node});
    },
    [](const Mark *mark) {
      Lock lock(state_mutex());
      return advance(lock, mark->node);
    },
    [](const Mark *mark) {
      Lock lock(state_mutex());
      finish(lock, mark->node);
    },
    [](Mark *mark) { delete mark; },
};

}  // namespace

void share_queue() {
  char place[64];
  std::snprintf(place, sizeof place, "%ld:%p", static_cast<long>(getpid()),
                static_cast<const void *>(&kQueue));
  setenv("CUDA_ON_CPU_QUEUE", place, 1);
}

}  // namespace cuda_on_cpu
