// Captures, and the replays of what they recorded.
#include "graph.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "memory.h"
#include "runtime.h"

namespace cuda_on_cpu {
namespace {

struct Recorded {
  Work work;
  std::vector<size_t> after;
  size_t lane;
};

}  // namespace
}  // namespace cuda_on_cpu

struct CUgraph_st {
  std::vector<cuda_on_cpu::Recorded> nodes;
};
struct CUgraphExec_st {
  std::vector<cuda_on_cpu::Recorded> nodes;
  cuda_on_cpu::NodePtr last;  // of the latest launch, which the next one follows
};

namespace cuda_on_cpu {

struct Capture {
  std::unique_ptr<CUgraph_st> graph;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::vector<StreamPtr> streams;  // the first began it
  bool is_valid = true;
};

namespace {

std::vector<std::shared_ptr<Capture>> captures;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t invalidate(Capture &capture, cudaError_t error) {
  capture.is_valid = false;
  return error;
}

void mark_before(const std::vector<Recorded> &nodes, const std::vector<size_t> &from,
                 std::vector<bool> *marked) {
  for (const size_t i : from) {
    if ((*marked)[i]) continue;
    (*marked)[i] = true;
    mark_before(nodes, nodes[i].after, marked);
  }
}

// Whether all that the streams recorded comes before what the first stream holds last.
bool is_joined(const Capture &capture) {
  std::vector<bool> before(capture.graph->nodes.size());
  mark_before(capture.graph->nodes, capture.streams[0]->frontier, &before);
  for (const StreamPtr &s : capture.streams)
    for (const size_t i : s->frontier)
      if (!before[i]) return false;
  return true;
}

// Each lane as a stream, the first being the one of the launch.
void replay(Lock &lock, CUgraphExec_st *exec, const StreamPtr &stream) {
  const NodePtr begin = append(lock, stream, nullptr, {exec->last});
  std::vector<StreamPtr> lanes = {stream};
  std::vector<NodePtr> all;
  for (const Recorded &node : exec->nodes) {
    while (lanes.size() <= node.lane) lanes.push_back(make_stream(lock, stream->device));
    std::vector<NodePtr> after = {begin};
    for (const size_t i : node.after) after.push_back(all[i]);
    /* Of lanes, none waits for the legacy stream but by `begin`. */
    if (node.lane > 0) lanes[node.lane]->is_blocking = false;
    all.push_back(append(lock, lanes[node.lane], node.work, std::move(after)));
  }
  exec->last = append(lock, stream, nullptr, std::move(all));
  for (size_t i = 1; i < lanes.size(); ++i) abandon_stream(lock, lanes[i]);
}

// Tells other libraries of the process where this runtime is.
struct Publication {
  Publication() {
    char place[64];
    std::snprintf(place, sizeof place, "%ld:%p", static_cast<long>(getpid()),
                  static_cast<const void *>(&graphs()));
    setenv(kRuntimePlace, place, 1);
  }
  ~Publication() { unsetenv(kRuntimePlace); }
} publication;

}  // namespace

cudaError_t record(const Lock &, Stream &stream, const Work &work) {
  if (!stream.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  std::vector<Recorded> &nodes = stream.capture->graph->nodes;
  nodes.push_back({work, std::move(stream.frontier), stream.lane});
  stream.frontier = {nodes.size() - 1};
  return cudaSuccess;
}

CapturedPlace place_of(const Lock &, const Stream &stream) {
  return {stream.capture, stream.frontier};
}

bool is_over(const Lock &, const CapturedPlace &place) {
  return place.capture != nullptr &&
         std::find(captures.begin(), captures.end(), place.capture) == captures.end();
}

cudaError_t join(const Lock &lock, const StreamPtr &stream, const CapturedPlace &place) {
  Capture *own = stream->capture.get();
  if (own != nullptr && !own->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (place.capture == nullptr)
    return own == nullptr ? cudaSuccess : invalidate(*own, cudaErrorStreamCaptureIsolation);
  if (is_over(lock, place)) return cudaErrorCapturedEvent;
  if (!place.capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (stream->is_legacy) return invalidate(*place.capture, cudaErrorStreamCaptureImplicit);
  if (own != nullptr && own != place.capture.get()) {
    invalidate(*own, cudaErrorStreamCaptureMerge);
    return invalidate(*place.capture, cudaErrorStreamCaptureMerge);
  }
  if (own == nullptr) {
    stream->capture = place.capture;
    stream->lane = place.capture->streams.size();
    place.capture->streams.push_back(stream);
  }
  for (const size_t i : place.frontier)
    if (std::find(stream->frontier.begin(), stream->frontier.end(), i) == stream->frontier.end())
      stream->frontier.push_back(i);
  return cudaSuccess;
}

cudaError_t refuse_in_capture(const Lock &) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto &capture : captures) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool counts = capture->mode == cudaStreamCaptureModeGlobal
                            ? is_own || thread_mode == cudaStreamCaptureModeGlobal
                            : is_own && capture->mode == cudaStreamCaptureModeThreadLocal;
    if (counts) error = invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return error;
}
cudaError_t refuse_in_capture() {
  return refuse_in_capture(Lock(state_mutex()));
}

cudaError_t refuse_on_captured(const Lock &lock, const Stream &stream) {
  if (stream.capture != nullptr)
    return invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
  return refuse_implicit(lock, stream);
}

cudaError_t refuse_on_device(const Lock &, int device) {
  cudaError_t error = cudaSuccess;
  for (const auto &capture : captures)
    if (capture->streams[0]->device == device)
      error = invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  return error;
}

cudaError_t refuse_implicit(const Lock &, const Stream &stream) {
  cudaError_t error = cudaSuccess;
  if (!stream.is_legacy) return error;
  for (const auto &capture : captures) {
    const bool is_blocking = std::any_of(
        capture->streams.begin(), capture->streams.end(),
        [&](const StreamPtr &s) { return s->is_blocking && s->device == stream.device; });
    if (is_blocking) error = invalidate(*capture, cudaErrorStreamCaptureImplicit);
  }
  return error;
}

const Graphs &graphs() {
  static const Graphs all = {
      [](cudaStream_t stream, const Work &work) -> int { return enqueue(stream, work); },
      is_deferred,
      []() -> int { return refuse_in_capture(); },
      current_device,
      is_foreign,
      [](int error) { fail_later(static_cast<cudaError_t>(error)); },
      cudaStreamCreateWithFlags,
      cudaStreamDestroy,
      cudaStreamSynchronize,
      cudaStreamBeginCapture,
      cudaStreamEndCapture,
      cudaGraphInstantiate,
      cudaGraphLaunch,
      cudaGraphDestroy,
      cudaGraphExecDestroy};
  return all;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (s->is_legacy) return answer(cudaErrorStreamCaptureUnsupported);
  if (s->capture != nullptr) return answer(cudaErrorIllegalState);
  s->capture = std::make_shared<Capture>();
  s->capture->graph = std::make_unique<CUgraph_st>();
  s->capture->mode = mode;
  s->capture->thread = std::this_thread::get_id();
  s->capture->streams = {s};
  s->lane = 0;
  s->frontier.clear();
  captures.push_back(s->capture);
  return answer(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  const Lock lock(state_mutex());
  *graph = nullptr;
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = s->capture;
  if (capture == nullptr) return answer(cudaErrorIllegalState);
  if (capture->streams[0] != s)
    return answer(invalidate(*capture, cudaErrorStreamCaptureUnmatched));
  cudaError_t error = cudaSuccess;
  if (!capture->is_valid) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (capture->mode != cudaStreamCaptureModeRelaxed &&
             capture->thread != std::this_thread::get_id()) {
    return answer(invalidate(*capture, cudaErrorStreamCaptureWrongThread));
  } else if (!is_joined(*capture)) {
    error = cudaErrorStreamCaptureUnjoined;
  }
  for (const StreamPtr &member : capture->streams) {
    member->capture = nullptr;
    member->frontier.clear();
  }
  std::erase(captures, capture);
  if (error == cudaSuccess) *graph = capture->graph.release();
  capture->streams.clear();
  return answer(error);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  const Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  *status = script().is_capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (s->is_legacy) {
    /* Not knowing is no use of the stream: nothing ends by the question. */
    for (const auto &capture : captures)
      for (const StreamPtr &member : capture->streams)
        if (member->is_blocking && member->device == s->device)
          return answer(cudaErrorStreamCaptureImplicit);
  } else if (s->capture != nullptr) {
    *status =
        s->capture->is_valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  }
  return answer(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *replay, cudaGraph_t graph, unsigned long long) {
  *replay = new CUgraphExec_st{graph->nodes, nullptr};
  return answer(cudaSuccess);
}
// On a captured stream the nodes become part of its graph.
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = refuse_implicit(lock, *s); error != cudaSuccess)
    return answer(error);
  if (s->capture == nullptr) {
    replay(lock, exec, s);
    return answer(cudaSuccess);
  }
  for (const Recorded &node : exec->nodes)
    if (const cudaError_t error = record(lock, *s, node.work); error != cudaSuccess)
      return answer(error);
  return answer(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay) {
  delete replay;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
