// One capture a stream: streams that wait for each other do not join.
#include "graph.h"

#include <map>
#include <mutex>
#include <thread>
#include <vector>

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

namespace cuda_on_cpu {
namespace {

struct Capture {
  CUgraph_st *graph = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool is_valid = true;
};

std::mutex mutex;  // guards the captures
std::map<cudaStream_t, Capture> captures;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

}  // namespace

cudaError_t enqueue(cudaStream_t stream, const std::function<void()> &work) {
  {
    const std::lock_guard lock(mutex);
    const auto found = captures.find(stream);
    if (found != captures.end()) {
      if (!found->second.is_valid) return cudaErrorStreamCaptureInvalidated;
      found->second.graph->work.push_back(work);
      return cudaSuccess;
    }
  }
  work();
  return cudaSuccess;
}

cudaError_t refuse_in_capture() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(mutex);
  cudaError_t error = cudaSuccess;
  for (auto &[stream, capture] : captures) {
    const bool is_own = capture.thread == std::this_thread::get_id();
    const bool counts = capture.mode == cudaStreamCaptureModeGlobal
                            ? is_own || thread_mode == cudaStreamCaptureModeGlobal
                            : is_own && capture.mode == cudaStreamCaptureModeThreadLocal;
    if (!counts) continue;
    capture.is_valid = false;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t refuse_on_captured(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  const auto found = captures.find(stream);
  if (found == captures.end()) return cudaSuccess;
  found->second.is_valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

bool is_recording(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  return captures.count(stream) != 0;
}

const Graphs &graphs() {
  static const Graphs all = {[](cudaStream_t stream, const std::function<void()> &work) -> int {
                               return enqueue(stream, work);
                             },
                             []() -> int { return refuse_in_capture(); },
                             cudaStreamCreateWithFlags,
                             cudaStreamDestroy,
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
  const std::lock_guard lock(mutex);
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;  // the legacy stream
  if (captures.count(stream) != 0) return cudaErrorIllegalState;
  captures[stream] = {new CUgraph_st, mode, std::this_thread::get_id(), true};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  const std::lock_guard lock(mutex);
  *graph = nullptr;
  const auto found = captures.find(stream);
  if (found == captures.end()) return cudaErrorIllegalState;
  const Capture capture = found->second;
  captures.erase(found);
  if (capture.is_valid) {
    *graph = capture.graph;
    return cudaSuccess;
  }
  delete capture.graph;
  return cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *replay, cudaGraph_t graph, unsigned long long) {
  *replay = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream) {
  for (const auto &work : replay->work)
    if (const cudaError_t error = enqueue(stream, work); error != cudaSuccess) return error;
  return cudaPeekAtLastError();
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
