// The functions of include/cuda_runtime.h that allocate, free, copy and fill.
#include <cstring>
#include <vector>

#include "graph.h"
#include "memory.h"
#include "runtime.h"
#include "sealed.h"

using namespace cuda_on_cpu;

namespace {

cudaError_t allocate(void **pointer, size_t bytes, Place place) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes <= script().free_bytes) *pointer = take_memory(bytes, place, current_device());
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

// Waits for all that may use the memory, as cudaFree does.
cudaError_t release(void *pointer, Place place) {
  Lock lock(state_mutex());
  if (const cudaError_t error = refuse_in_capture(lock); error != cudaSuccess) return error;
  if (pointer == nullptr) return cudaSuccess;
  if (!owns_memory(pointer, place)) return cudaErrorInvalidValue;
  for (int device = 0; device < script().devices; ++device) finish_device(lock, device);
  give_memory(pointer);
  return cudaSuccess;
}

void copy_bytes(void *to, const void *from, size_t bytes) {
  if (bytes > 0) std::memmove(open_address(to), open_address(from), bytes);
}

// Memory of another device: the copy fails like a kernel, later.
bool fails_abroad(const void *to, const void *from) {
  if (!is_foreign(to) && !is_foreign(from)) return false;
  fail_later(cudaErrorIllegalAddress);
  return true;
}

}  // namespace

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  ++counters().allocations;
  *pointer = nullptr;
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return answer(error);
  return answer(allocate(pointer, bytes, Place::kDevice));
}
cudaError_t cudaFree(void *pointer) {
  return answer(release(pointer, Place::kDevice));
}
cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  *pointer = nullptr;
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return answer(error);
  return answer(allocate(pointer, bytes, Place::kPinned));
}
cudaError_t cudaFreeHost(void *pointer) {
  return answer(release(pointer, Place::kPinned));
}
// Part of the stream, and of a graph: each replay has the same address.
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
  ++counters().allocations;
  if (const cudaError_t error = enqueue(stream, [] {}); error != cudaSuccess) return answer(error);
  return answer(allocate(pointer, bytes, Place::kDevice));
}
// Whoever uses the memory later without waiting for this stream may find another's bytes. What a
// graph frees its next replay has again.
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  if (pointer == nullptr) return answer(cudaSuccess);
  if (!owns_memory(pointer, Place::kDevice)) return answer(cudaErrorInvalidValue);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (const cudaError_t error = cudaStreamIsCapturing(stream, &capture); error != cudaSuccess)
    return error;
  const bool is_captured = capture != cudaStreamCaptureStatusNone;
  return answer(enqueue(stream, [pointer, is_captured] {
    if (is_captured)
      poison_memory(pointer);
    else
      give_memory(pointer);
  }));
}

// Pageable memory of the host is read and written in the call, pinned memory when the copy runs. In
// a graph a pageable copy would use whatever is at the address in each replay, so it is refused,
// though CUDA takes it.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  ++counters().copies;
  if (const cudaError_t error = answer(cudaSuccess); error != cudaSuccess) return error;
  if (fails_abroad(to, from)) return cudaSuccess;
  if (!is_deferred(stream)) return answer(enqueue(stream, [=] { copy_bytes(to, from, bytes); }));
  const bool reads_host = place_of(from) == Place::kPageable;
  const bool writes_host = place_of(to) == Place::kPageable;
  if (reads_host || writes_host) {
    Lock lock(state_mutex());
    const StreamPtr s = find_stream(lock, stream);
    const cudaError_t error =
        s == nullptr ? cudaErrorInvalidResourceHandle : refuse_on_captured(lock, *s);
    if (error != cudaSuccess) return answer(error);
    if (writes_host) {
      finish(lock, append(lock, s, [=] { copy_bytes(to, from, bytes); }));
      return answer(cudaSuccess);
    }
  }
  if (!reads_host) return answer(enqueue(stream, [=] { copy_bytes(to, from, bytes); }));
  const auto *begin = static_cast<const unsigned char *>(from);
  return answer(enqueue(stream, [=, staged = std::vector<unsigned char>(begin, begin + bytes)] {
    copy_bytes(to, staged.data(), bytes);
  }));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  ++counters().memsets;
  if (const cudaError_t error = answer(cudaSuccess); error != cudaSuccess) return error;
  if (fails_abroad(to, nullptr)) return cudaSuccess;
  return answer(enqueue(stream, [=] {
    if (bytes > 0) std::memset(open_address(to), value, bytes);
  }));
}
