// The functions of include/cuda_runtime.h beside streams and memory: launches, one or more devices
// that a script describes, and errors that stay once they happened, as a device's do.
#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "fake_gpu.h"
#include "fibers.h"
#include "graph.h"
#include "memory.h"
#include "sealed.h"

namespace cuda_on_cpu {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool is_sticky = false;

// The code that launches have loaded, of each device.
struct LoadedCode {
  std::mutex mutex;
  std::set<std::pair<int, const void *>> kernels;
};
LoadedCode &loaded_code() {
  static LoadedCode code;
  return code;
}

// The first launch of a kernel on a device loads its code, which ends a capture.
cudaError_t load(const void *kernel) {
  LoadedCode &loaded = loaded_code();
  const std::lock_guard lock(loaded.mutex);
  const std::pair<int, const void *> code = {current_device(), kernel};
  if (loaded.kernels.count(code) != 0) return cudaSuccess;
  const cudaError_t error = refuse_in_capture();
  if (error == cudaSuccess) loaded.kernels.insert(code);
  return error;
}

}  // namespace

void forget_code() {
  LoadedCode &loaded = loaded_code();
  const std::lock_guard lock(loaded.mutex);
  loaded.kernels.clear();
}

Counters &counters() {
  thread_local Counters c;
  return c;
}

uint64_t lazy_of_environment() {
  const char *text = std::getenv("CUDA_ON_CPU_LAZY");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

Script &script() {
  static Script s;
  return s;
}

void reset() {
  counters() = {};
  script() = {};
  device_of_thread = 0;
  last_error = cudaSuccess;
  is_sticky = false;
  reset_streams();
  check_freed();
}

int current_device() {
  return device_of_thread;
}

cudaError_t answer(cudaError_t error) {
  if (is_sticky) return last_error;
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t launch(const cudaLaunchConfig_t &config, const void *function,
                   const std::function<void()> &kernel) {
  if (is_sticky) return last_error;
  const dim3 &b = config.blockDim;
  const dim3 &g = config.gridDim;
  const size_t threads = size_t{b.x} * b.y * b.z;
  const bool is_grid = g.x > 0 && g.y > 0 && g.z > 0 && g.y <= 65535 && g.z <= 65535;
  if (threads == 0 || threads > 1024 || !is_grid || config.dynamicSmemBytes > 48 * 1024)
    return answer(cudaErrorInvalidValue);
  if (device_of_stream(config.stream) != current_device())
    return answer(cudaErrorInvalidResourceHandle);
  ++counters().launches;
  if (static_cast<int>(threads) > counters().largest_block)
    counters().largest_block = static_cast<int>(threads);
  if (script().launch_error != cudaSuccess) return answer(script().launch_error);
  if (script().launches_before_failure == 0) return fail_later(script().launch_failure);
  if (script().launches_before_failure > 0) --script().launches_before_failure;
  if (const cudaError_t error = load(function); error != cudaSuccess) return answer(error);
  return answer(enqueue(config.stream, [g, b, function, kernel] {
    const DeviceAccess access;
    run_grid(g, b, function, kernel);
  }));
}

bool refuses_argument(const void *argument, size_t bytes) {
  return (is_sealed() && points_to_host(argument, bytes)) || points_to_foreign(argument, bytes);
}

cudaError_t fail_later(cudaError_t error) {
  is_sticky = true;
  last_error = error;
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

using cuda_on_cpu::answer;
using cuda_on_cpu::counters;
using cuda_on_cpu::refuse_in_capture;
using cuda_on_cpu::script;

cudaError_t cudaGetDeviceCount(int *count) {
  *count = script().device_count_error == cudaSuccess ? script().devices : 0;
  if (script().device_count_error != cudaSuccess) return answer(script().device_count_error);
  return answer(script().devices == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaGetDevice(int *device) {
  *device = cuda_on_cpu::current_device();
  return answer(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= script().devices) return answer(cudaErrorInvalidDevice);
  if (script().set_device_error != cudaSuccess) return answer(script().set_device_error);
  cuda_on_cpu::device_of_thread = device;
  return answer(cudaSuccess);
}
static int capability() {
  if (script().capability_major == 0) return cuda_on_cpu::fake_capability();
  return script().capability_major * 10 + script().capability_minor;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= script().devices) return answer(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = script().multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability() % 10; break;
    default: return answer(cudaErrorInvalidValue);
  }
  return answer(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  if (device < 0 || device >= script().devices) return answer(cudaErrorInvalidDevice);
  std::snprintf(properties->name, sizeof(properties->name), "fake GPU sm_%d of device %d",
                capability(), device);
  return answer(cudaSuccess);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  *attributes = {};
  if (const cudaError_t error = refuse_in_capture(); error != cudaSuccess) return answer(error);
  if (script().free_bytes == 0) return answer(cudaErrorMemoryAllocation);  // the context's own
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
cudaError_t cudaDeviceSynchronize() {
  ++counters().synchronisations;
  cuda_on_cpu::Lock lock(cuda_on_cpu::state_mutex());
  const int device = cuda_on_cpu::current_device();
  if (const cudaError_t error = cuda_on_cpu::refuse_on_device(lock, device); error != cudaSuccess)
    return answer(error);
  cuda_on_cpu::finish_device(lock, device);
  return answer(cudaSuccess);
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
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
    default: return "unknown";
  }
}
const char *cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
