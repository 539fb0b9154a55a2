// The events and streams of include/cuda_runtime.h.
#include "events.h"

#include <mutex>
#include <set>

#include "graph.h"
#include "runtime.h"

struct CUevent_st {
  cudaStream_t stream = nullptr;
  bool was_held = false;
  float milliseconds = 0;
};
struct CUstream_st {
  char unused;
};

namespace cuda_on_cpu {
namespace {

std::mutex mutex;  // guards all below
std::set<cudaStream_t> held;
std::set<cudaStream_t> captured;
int events = 0;
int streams = 0;
int waits = 0;

}  // namespace

void hold_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  held.insert(stream);
}
void release_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  held.erase(stream);
}
void capture_stream(cudaStream_t stream, bool is_captured) {
  const std::lock_guard lock(mutex);
  if (is_captured)
    captured.insert(stream);
  else
    captured.erase(stream);
}
int events_alive() {
  const std::lock_guard lock(mutex);
  return events;
}
int streams_alive() {
  const std::lock_guard lock(mutex);
  return streams;
}
int event_waits() {
  const std::lock_guard lock(mutex);
  return waits;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  const std::lock_guard lock(mutex);
  *event = new CUevent_st;
  ++events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (event == nullptr || captured.count(stream) != 0) return cudaErrorInvalidValue;
  event->stream = stream;
  event->was_held = held.count(stream) != 0;
  event->milliseconds = script().milliseconds;
  return cudaPeekAtLastError();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++counters().synchronisations;
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return error;
  return event == nullptr ? cudaErrorInvalidValue : cudaPeekAtLastError();
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = end->milliseconds - begin->milliseconds;
  return cudaPeekAtLastError();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return error;
  const std::lock_guard lock(mutex);
  if (event == nullptr) return cudaErrorInvalidValue;
  if (held.count(event->stream) == 0) event->was_held = false;
  return event->was_held ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  delete event;
  --events;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
  const std::lock_guard lock(mutex);
  *stream = new CUstream_st;
  ++streams;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  held.erase(stream);
  delete stream;
  --streams;
  return cudaSuccess;
}
// An event of outside cannot become part of a graph.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(mutex);
  ++waits;
  return event == nullptr || captured.count(stream) != 0 ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  const std::lock_guard lock(mutex);
  const bool is_captured =
      script().is_capturing || captured.count(stream) != 0 || is_recording(stream);
  *status = is_captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
