// Captures and graphs of include/cuda_runtime.h: what is enqueued on a captured stream is recorded
// with its arguments, and runs in each replay. For several threads.
//
// A stream that waits for an event of a captured one joins the capture, and must have been joined
// when it ends. What the manual of the runtime forbids meanwhile ("Prohibited and Unhandled
// Operations", and cudaThreadExchangeStreamCaptureMode) ends the capture: the call answers one of
// cudaErrorStreamCapture..., later ones on the stream cudaErrorStreamCaptureInvalidated.
#pragma once

#include "streams.h"

namespace cuda_on_cpu {

// Where a captured stream is: what an event remembers of it.
struct CapturedPlace {
  std::shared_ptr<Capture> capture;  // null: none
  std::vector<size_t> frontier;
};

cudaError_t record(const Lock &lock, Stream &stream, const Work &work);
CapturedPlace place_of(const Lock &lock, const Stream &stream);
// A stream waits for such an event.
cudaError_t join(const Lock &lock, const StreamPtr &stream, const CapturedPlace &place);
bool is_over(const Lock &lock, const CapturedPlace &place);

// For calls that may synchronize or allocate, or load code. Not cudaSuccess: a capture that the
// calling thread must respect has ended by this.
cudaError_t refuse_in_capture();
cudaError_t refuse_in_capture(const Lock &lock);
// For calls that ask about this stream or the device, in whatever mode.
cudaError_t refuse_on_captured(const Lock &lock, const Stream &stream);
cudaError_t refuse_on_device(const Lock &lock, int device);
// For calls on the legacy stream, for which blocking streams would have to wait.
cudaError_t refuse_implicit(const Lock &lock, const Stream &stream);

// Some functions above and those of CUDA, for what finds a runtime by its symbols, or by the
// environment: "CUDA_ON_CPU_RUNTIME=<process>:<address of this>".
struct Graphs {
  int (*enqueue)(cudaStream_t, const Work &);
  bool (*is_deferred)(cudaStream_t);
  int (*refuse_in_capture)();
  int (*current_device)();
  bool (*is_foreign)(const void *);  // see memory.h
  void (*fail_later)(int error);     // as a kernel would
  decltype(&cudaStreamCreateWithFlags) create_stream;
  decltype(&cudaStreamDestroy) destroy_stream;
  decltype(&cudaStreamSynchronize) synchronize;
  decltype(&cudaStreamBeginCapture) begin;
  decltype(&cudaStreamEndCapture) end;
  decltype(&cudaGraphInstantiate) instantiate;
  decltype(&cudaGraphLaunch) launch;
  decltype(&cudaGraphDestroy) destroy;
  decltype(&cudaGraphExecDestroy) destroy_replay;
};
const Graphs &graphs();
constexpr const char *kRuntimePlace = "CUDA_ON_CPU_RUNTIME";

}  // namespace cuda_on_cpu
