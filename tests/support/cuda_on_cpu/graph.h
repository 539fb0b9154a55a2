// Captures and graphs of include/cuda_runtime.h: what is enqueued on a captured stream is recorded
// with its arguments, and runs in each replay. For several threads.
//
// What the manual of the runtime forbids while a stream is captured ("Prohibited and Unhandled
// Operations", and cudaThreadExchangeStreamCaptureMode) ends the capture: the call answers
// cudaErrorStreamCaptureUnsupported, later ones on the stream cudaErrorStreamCaptureInvalidated.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace cuda_on_cpu {

// Runs `work`, or records it where the stream is captured.
cudaError_t enqueue(cudaStream_t stream, const std::function<void()> &work);

// For calls that may synchronize or allocate. Not cudaSuccess: a capture that the calling thread
// must respect has ended by this.
cudaError_t refuse_in_capture();
// For calls that ask about this stream, in whatever mode.
cudaError_t refuse_on_captured(cudaStream_t stream);

// Whether the stream is between cudaStreamBeginCapture and cudaStreamEndCapture.
bool is_recording(cudaStream_t stream);

// The functions above and those of CUDA, for what finds a runtime by its symbols.
struct Graphs {
  int (*enqueue)(cudaStream_t, const std::function<void()> &);
  int (*refuse_in_capture)();
  decltype(&cudaStreamCreateWithFlags) create_stream;
  decltype(&cudaStreamDestroy) destroy_stream;
  decltype(&cudaStreamBeginCapture) begin;
  decltype(&cudaStreamEndCapture) end;
  decltype(&cudaGraphInstantiate) instantiate;
  decltype(&cudaGraphLaunch) launch;
  decltype(&cudaGraphDestroy) destroy;
  decltype(&cudaGraphExecDestroy) destroy_replay;
};
const Graphs &graphs();

}  // namespace cuda_on_cpu
