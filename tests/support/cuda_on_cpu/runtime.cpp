// The functions of include/cuda_runtime.h beside launches: memory of the host, one or more devices
// that a script describes, and errors that stay once they happened, as a device's do.
#include "runtime.h"

#include <cstdlib>
#include <cstring>

#include "fibers.h"
#include "graph.h"
#include "sealed.h"

namespace cuda_on_cpu {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool is_sticky = false;

cudaError_t answer(cudaError_t error) {
  if (is_sticky) return last_error;
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace

Counters &counters() {
  thread_local Counters c;
  return c;
}

Script &script() {
  static Script s;
  return s;
}

void reset() {
  counters() = {};
  script() = {};
  current_device = 0;
  last_error = cudaSuccess;
  is_sticky = false;
}

cudaError_t launch(const cudaLaunchConfig_t &config, const std::function<void()> &kernel) {
  if (is_sticky) return last_error;
  const dim3 &b = config.blockDim;
  const dim3 &g = config.gridDim;
  const size_t threads = size_t{b.x} * b.y * b.z;
  const bool is_grid = g.x > 0 && g.y > 0 && g.z > 0 && g.y <= 65535 && g.z <= 65535;
  if (threads == 0 || threads > 1024 || !is_grid || config.dynamicSmemBytes > 48 * 1024)
    return answer(cudaErrorInvalidValue);
  ++counters().launches;
  if (static_cast<int>(threads) > counters().largest_block)
    counters().largest_block = static_cast<int>(threads);
  if (script().launch_error != cudaSuccess) return answer(script().launch_error);
  if (script().launches_before_failure == 0) return fail_later(script().launch_failure);
  if (script().launches_before_failure > 0) --script().launches_before_failure;
  return answer(enqueue(config.stream, [g, b, kernel] {
    const DeviceAccess access;
    run_grid(g, b, kernel);
  }));
}

bool refuses_argument(const void *argument, size_t bytes) {
  return is_sealed() && points_to_host(argument, bytes);
}

cudaError_t fail_later(cudaError_t error) {
  is_sticky = true;
  last_error = error;
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

using cuda_on_cpu::answer;
using cuda_on_cpu::counters;
using cuda_on_cpu::enqueue;
using cuda_on_cpu::refuse_in_capture;
using cuda_on_cpu::script;

cudaError_t cudaGetDeviceCount(int *count) {
  *count = script().device_count_error == cudaSuccess ? script().devices : 0;
  if (script().device_count_error != cudaSuccess) return answer(script().device_count_error);
  return answer(script().devices == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaGetDevice(int *device) {
  *device = cuda_on_cpu::current_device;
  return answer(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= script().devices) return answer(cudaErrorInvalidDevice);
  cuda_on_cpu::current_device = device;
  return answer(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= script().devices) return answer(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = script().multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = script().capability_major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = script().capability_minor; break;
    default: return answer(cudaErrorInvalidValue);
  }
  return answer(cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  *attributes = {};
  return answer(script().has_code ? cudaSuccess : cudaErrorNoKernelImageForDevice);
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = script().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *free = script().free_bytes;
  *total = script().total_bytes;
  return answer(cudaSuccess);
}
cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  ++counters().allocations;
  *pointer = nullptr;
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return answer(error);
  const bool fits = bytes <= script().free_bytes;
  *pointer = !fits                      ? nullptr
             : cuda_on_cpu::is_sealed() ? cuda_on_cpu::sealed_allocate(bytes)
                                        : std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return answer(*pointer == nullptr && bytes > 0 ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void *pointer) {
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return answer(error);
  if (!cuda_on_cpu::is_sealed()) std::free(pointer);
  return answer(cudaSuccess);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  ++counters().copies;
  if (cuda_on_cpu::is_sticky) return cuda_on_cpu::last_error;
  return answer(enqueue(stream, [=] {
    const cuda_on_cpu::DeviceAccess access;
    if (bytes > 0) std::memmove(to, from, bytes);
  }));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  ++counters().memsets;
  if (cuda_on_cpu::is_sticky) return cuda_on_cpu::last_error;
  return answer(enqueue(stream, [=] {
    const cuda_on_cpu::DeviceAccess access;
    if (bytes > 0) std::memset(to, value, bytes);
  }));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++counters().synchronisations;
  return answer(cuda_on_cpu::refuse_on_captured(stream));
}
cudaError_t cudaDeviceSynchronize() {
  ++counters().synchronisations;
  return answer(refuse_in_capture());
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_cpu::last_error;
  if (!cuda_on_cpu::is_sticky) cuda_on_cpu::last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  return cuda_on_cpu::last_error;
}

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    default: return "unknown";
  }
}
const char *cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
