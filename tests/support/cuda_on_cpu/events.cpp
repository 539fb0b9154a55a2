// The events of include/cuda_runtime.h.
#include "events.h"

#include "graph.h"
#include "runtime.h"

struct CUevent_st {
  cuda_on_cpu::StreamPtr stream;  // null: it was never recorded
  cuda_on_cpu::NodePtr node;      // after which it is done
  cuda_on_cpu::CapturedPlace place;
  bool was_held = false;
  float milliseconds = 0;
};

namespace cuda_on_cpu {
namespace {

int events = 0;
int waits = 0;

void set_held(cudaStream_t stream, bool is_held) {
  const Lock lock(state_mutex());
  if (const StreamPtr s = find_stream(lock, stream)) s->is_held = is_held;
}

// For calls that ask how far an event is.
cudaError_t refuse_question(const Lock &lock, const CUevent_st *event) {
  if (event == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t error = refuse_in_capture(lock); error != cudaSuccess) return error;
  return event->place.capture != nullptr ? cudaErrorCapturedEvent : cudaSuccess;
}

}  // namespace

void hold_stream(cudaStream_t stream) {
  set_held(stream, true);
}
void release_stream(cudaStream_t stream) {
  set_held(stream, false);
}
int events_alive() {
  const Lock lock(state_mutex());
  return events;
}
int event_waits() {
  const Lock lock(state_mutex());
  return waits;
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  const Lock lock(state_mutex());
  *event = new CUevent_st;
  ++events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(state_mutex());
  const StreamPtr s = find_stream(lock, stream);
  if (event == nullptr || s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = refuse_implicit(lock, *s); error != cudaSuccess)
    return answer(error);
  event->stream = s;
  event->was_held = s->is_held;
  event->milliseconds = script().milliseconds;
  event->place = place_of(lock, *s);
  event->node = event->place.capture == nullptr ? append(lock, s, nullptr) : nullptr;
  return answer(cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++counters().synchronisations;
  Lock lock(state_mutex());
  if (const cudaError_t error = refuse_question(lock, event); error != cudaSuccess)
    return answer(error);
  finish(lock, event->node);
  return answer(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(state_mutex());
  for (const cudaEvent_t event : {begin, end})
    if (event->node != nullptr && !event->node->is_done) return answer(cudaErrorNotReady);
  *milliseconds = end->milliseconds - begin->milliseconds;
  return answer(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(state_mutex());
  if (const cudaError_t error = refuse_question(lock, event); error != cudaSuccess)
    return answer(error);
  if (event->stream != nullptr && !event->stream->is_held) event->was_held = false;
  const bool is_done = advance(lock, event->node) && !event->was_held;
  return is_done ? answer(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(state_mutex());
  delete event;
  --events;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(state_mutex());
  ++waits;
  const StreamPtr s = find_stream(lock, stream);
  if (event == nullptr || s == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (event->stream == nullptr) return answer(cudaSuccess);
  if (s->capture != nullptr || event->place.capture != nullptr)
    return answer(join(lock, s, event->place));
  if (const cudaError_t error = refuse_implicit(lock, *s); error != cudaSuccess)
    return answer(error);
  append(lock, s, nullptr, {event->node});
  return answer(cudaSuccess);
}
