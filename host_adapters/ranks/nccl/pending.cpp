/* The ring of events after operations. */
#include "host_adapters/ranks/nccl/pending.h"

#include "kernels/cuda/capture_mode.h"

namespace octavo::cuda::nccl {
cudaError_t Pending::open() {
  for (Entry &e : entries_) {
    const cudaError_t error = cudaEventCreateWithFlags(&e.event, cudaEventDisableTiming);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void Pending::close() {
  for (Entry &e : entries_) {
    if (e.event != nullptr) cudaEventDestroy(e.event);
    e.event = nullptr;
  }
  last_ = nullptr;
  count_ = 0;
}

cudaError_t Pending::add(const Operation &operation, cudaStream_t stream) {
  if (count_ < entries_.size()) {
    ++count_;
    if (count_ == 1) since_ = Clock::now();
    newest().operation = operation;
  }
  last_ = newest().event;
  const cudaError_t error = cudaStreamGetId(stream, &last_stream_);
  return error == cudaSuccess ? cudaEventRecord(last_, stream) : error;
}

cudaError_t Pending::order(cudaStream_t stream) {
  if (last_ == nullptr) return cudaSuccess;
  unsigned long long id = 0;
  const cudaError_t error = cudaStreamGetId(stream, &id);
  if (error != cudaSuccess || id == last_stream_) return error;
  return cudaStreamWaitEvent(stream, last_, 0);
}

cudaError_t Pending::look() {
  /* A query of another thread would end a capture in global mode, with which this has nothing in
   * common. */
  const CaptureMode relaxed(cudaStreamCaptureModeRelaxed);
  while (count_ > 0) {
    const cudaError_t error = cudaEventQuery(entries_[first_].event);
    if (error == cudaErrorNotReady) return cudaSuccess;
    if (error != cudaSuccess) return error;
    first_ = (first_ + 1) % entries_.size();
    --count_;
    since_ = Clock::now();
  }
  return cudaSuccess;
}

}  // namespace octavo::cuda::nccl
