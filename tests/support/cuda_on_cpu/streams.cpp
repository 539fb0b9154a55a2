// Queues of streams, and the one place that takes work from them.
#include "streams.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "graph.h"
#include "runtime.h"

// A handle is given again once its stream is destroyed, the last one first.
struct CUstream_st {
  cuda_on_cpu::StreamPtr stream;
};

namespace cuda_on_cpu {
namespace {

std::condition_variable ran;
std::vector<StreamPtr> streams;  // those destroyed, too, while they hold work
std::map<int, StreamPtr> legacy_streams;
std::vector<std::unique_ptr<CUstream_st>> handles;
std::vector<CUstream_st *> free_handles;

std::mt19937_64 &order() {
  static std::mt19937_64 random;
  static uint64_t seed = 0;
  if (seed != script().lazy) random.seed(seed = script().lazy);
  return random;
}

StreamPtr legacy_stream(const Lock &lock, int device) {
  StreamPtr &found = legacy_streams[device];
  if (found == nullptr) {
    found = make_stream(lock, device);
    found->is_legacy = true;
  }
  return found;
}

// What cudaStreamPerThread is for a thread.
StreamPtr stream_of_thread(const Lock &lock) {
  thread_local std::map<int, StreamPtr> own;
  StreamPtr &found = own[current_device()];
  if (found == nullptr) found = make_stream(lock, current_device());
  return found;
}

bool is_ready(const Node &node) {
  return !node.is_taken && std::all_of(node.after.begin(), node.after.end(),
                                       [](const NodePtr &before) { return before->is_done; });
}

void add_needed(const Node *node, std::set<const Node *> *needed) {
  if (node->is_done || !needed->insert(node).second) return;
  for (const NodePtr &before : node->after) add_needed(before.get(), needed);
}

// A stream whose first node is ready, and is one of those; null: there is none.
template <typename Fits>
StreamPtr pick(Fits &&fits) {
  std::vector<StreamPtr> ready;
  for (const StreamPtr &s : streams)
    if (!s->queue.empty() && is_ready(*s->queue.front()) && fits(s->queue.front().get()))
      ready.push_back(s);
  return ready.empty() ? nullptr : ready[order()() % ready.size()];
}

void run_first(Lock &lock, const StreamPtr &stream) {
  const NodePtr node = stream->queue.front();
  node->is_taken = true;
  lock.unlock();
  if (node->work != nullptr) node->work();
  lock.lock();
  node->work = nullptr;
  node->after.clear();
  node->is_done = true;
  stream->queue.pop_front();
  if (stream->queue.empty() && stream->is_gone) std::erase(streams, stream);
  ran.notify_all();
}

// Other streams get on meanwhile: not at all, somehow, or as far as they can.
void finish_all(Lock &lock, const std::vector<NodePtr> &nodes) {
  const auto eagerness = order()() % 3;
  for (;;) {
    std::set<const Node *> needed;
    for (const NodePtr &node : nodes) add_needed(node.get(), &needed);
    if (needed.empty()) return;
    const auto is_needed = [&](const Node *node) { return needed.count(node) != 0; };
    StreamPtr next;
    if (eagerness == 1) next = pick([](const Node *) { return true; });
    if (eagerness == 2) next = pick([&](const Node *node) { return !is_needed(node); });
    if (next == nullptr) next = pick(is_needed);
    if (next != nullptr) {
      run_first(lock, next);
      continue;
    }
    const bool is_running = std::any_of(streams.begin(), streams.end(), [](const StreamPtr &s) {
      return !s->queue.empty() && s->queue.front()->is_taken;
    });
    if (!is_running) {
      std::fprintf(stderr, "cuda_on_cpu: streams wait for each other\n");
      std::abort();
    }
    ran.wait(lock);
  }
}

void add_last(const StreamPtr &stream, std::vector<NodePtr> *nodes) {
  if (stream != nullptr && !stream->queue.empty()) nodes->push_back(stream->queue.back());
}

}  // namespace

std::mutex &state_mutex() {
  static std::mutex mutex;
  return mutex;
}

StreamPtr find_stream(const Lock &lock, cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return legacy_stream(lock, current_device());
  if (stream == cudaStreamPerThread) return stream_of_thread(lock);
  for (const auto &handle : handles)
    if (handle.get() == stream) return handle->stream;
  return nullptr;
}

StreamPtr make_stream(const Lock &, int device) {
  static unsigned long long made_before = 0;
  auto made = std::make_shared<Stream>();
  made->id = ++made_before;
  made->device = device;
  streams.push_back(made);
  return made;
}

void abandon_stream(const Lock &, const StreamPtr &stream) {
  stream->is_gone = true;
  if (stream->queue.empty()) std::erase(streams, stream);
}

int streams_alive() {
  const Lock lock(state_mutex());
  return static_cast<int>(handles.size() - free_handles.size());
}

NodePtr append(Lock &lock, const StreamPtr &stream, Work work, std::vector<NodePtr> after) {
  if (script().lazy == 0) {
    lock.unlock();
    if (work != nullptr) work();
    lock.lock();
    return nullptr;
  }
  add_last(stream, &after);
  for (const StreamPtr &other : streams) {
    const bool is_ordered = other->device == stream->device &&
                            other->is_legacy != stream->is_legacy && other->is_blocking &&
                            stream->is_blocking;
    if (is_ordered) add_last(other, &after);
  }
  std::erase_if(after, [](const NodePtr &node) { return node == nullptr || node->is_done; });
  stream->queue.push_back(std::make_shared<Node>(Node{std::move(work), std::move(after)}));
  return stream->queue.back();
}

void finish(Lock &lock, const NodePtr &node) {
  if (node != nullptr && !node->is_done) finish_all(lock, {node});
}
void finish_stream(Lock &lock, const StreamPtr &stream) {
  std::vector<NodePtr> last;
  add_last(stream, &last);
  /* The legacy stream is done when those that it waits for are. */
  if (stream->is_legacy)
    for (const StreamPtr &other : streams)
      if (other->device == stream->device && other->is_blocking) add_last(other, &last);
  if (!last.empty()) finish_all(lock, last);
}
void finish_device(Lock &lock, int device) {
  std::vector<NodePtr> last;
  for (const StreamPtr &s : streams)
    if (s->device == device) add_last(s, &last);
  if (!last.empty()) finish_all(lock, last);
}

bool advance(Lock &lock, const NodePtr &node) {
  if (node == nullptr) return true;
  for (auto count = 1 + order()() % 3; count > 0 && !node->is_done; --count) {
    const StreamPtr next = pick([](const Node *) { return true; });
    if (next == nullptr) break;
    run_first(lock, next);
  }
  return node->is_done;
}

void reset_streams() {
  const Lock lock(state_mutex());
  for (const StreamPtr &s : streams) {
    for (const NodePtr &node : s->queue) node->after.clear(), node->is_done = true;
    s->queue.clear();
  }
  std::erase_if(streams, [](const StreamPtr &s) { return s->is_gone; });
  order().seed(script().lazy);
}

void settle() {
  Lock lock(state_mutex());
  std::vector<NodePtr> last;
  for (const StreamPtr &s : streams) add_last(s, &last);
  if (!last.empty()) finish_all(lock, last);
}
bool is_idle() {
  const Lock lock(state_mutex());
  return std::all_of(streams.begin(), streams.end(),
                     [](const StreamPtr &s) { return s->queue.empty(); });
}
void settle_stream(cudaStream_t stream) {
  Lock lock(state_mutex());
  if (const StreamPtr s = find_stream(lock, stream)) finish_stream(lock, s);
}

cudaError_t enqueue(cudaStream_t stream, const Work &work) {
  Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = refuse_implicit(lock, *s); error != cudaSuccess) return error;
  if (s->capture != nullptr) return record(lock, *s, work);
  append(lock, s, work);
  return cudaSuccess;
}

bool is_deferred(cudaStream_t stream) {
  const Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  return script().lazy != 0 || s == nullptr || s->capture != nullptr;
}

int device_of_stream(cudaStream_t stream) {
  const Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  return s == nullptr ? -1 : s->device;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  const Lock lock(state_mutex());
  if (free_handles.empty()) {
    handles.push_back(std::make_unique<CUstream_st>());
    free_handles.push_back(handles.back().get());
  }
  *stream = free_handles.back();
  free_handles.pop_back();
  (*stream)->stream = make_stream(lock, current_device());
  (*stream)->stream->is_blocking = (flags & cudaStreamNonBlocking) == 0;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *arg) {
  return enqueue(stream, [=] { run(arg); });
}
// Returns at once; what the stream holds still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(state_mutex());
  const bool is_handle =
      stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
  const StreamPtr found = is_handle ? find_stream(lock, stream) : nullptr;
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  abandon_stream(lock, found);
  stream->stream = nullptr;
  free_handles.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
  const Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  *id = s->id;
  return answer(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++counters().synchronisations;
  Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = refuse_on_captured(lock, *s); error != cudaSuccess)
    return answer(error);
  finish_stream(lock, s);
  return answer(cudaSuccess);
}
