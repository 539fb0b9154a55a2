// What is not linked is looked up by name: aoti_torch_get_current_cuda_stream of torch's stable
// ABI, cuStreamIsCapturing of the driver, and c10::Stream::native_handle.
#include "stream.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/util/shim_utils.h>

#include <atomic>
#include <exception>
#include <memory>

#include "driver.h"
#include "error.h"

namespace octavo::core {
namespace {

using CurrentStream = AOTITorchError (*)(int32_t device, void **stream);
using NativeHandle = void *(*)(const StreamOpaque *stream);
using IsCapturing = int (*)(void *stream, int *status);

// The driver may be loaded after the first call without a graph, so absence is not remembered.
IsCapturing is_capturing() {
  static std::atomic<IsCapturing> known = nullptr;
  IsCapturing function = known.load(std::memory_order_relaxed);
  if (function != nullptr) return function;
  function = reinterpret_cast<IsCapturing>(loaded("libcuda.so.1", "cuStreamIsCapturing"));
  known.store(function, std::memory_order_relaxed);
  return function;
}

// Of the device that torch calls its accelerator. A StreamHandle is a c10::Stream, whose native
// handle torch's stable ABI does not give yet.
void *native_stream(int32_t index) {
  StreamHandle found = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_stream(index, &found));
  const std::unique_ptr<StreamOpaque, decltype(&aoti_torch_delete_stream)> stream(
      found, aoti_torch_delete_stream);
  static const auto native = reinterpret_cast<NativeHandle>(
      loaded("libc10.so", "_ZNK3c106Stream13native_handleEv"));  // c10::Stream::native_handle
  static std::atomic<bool> has_handles = native != nullptr;
  if (has_handles.load(std::memory_order_relaxed)) {
    try {
      return native(stream.get());
    } catch (const std::exception &) {  // the device's guard has none
      has_handles.store(false, std::memory_order_relaxed);
    }
  }
  int64_t id = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_stream_id(stream.get(), &id));
  if (id == 0) return nullptr;
  raise(OCTAVO_UNSUPPORTED,
        "the current stream: expected the default one, since torch's guard of this device gives no "
        "native handle of a stream (getStreamNativeHandle), found stream " +
            std::to_string(id) + "; call the model outside of the stream's scope");
}

}  // namespace

void *current_stream(const Device &device) {
  static const int32_t cpu = aoti_torch_device_type_cpu();
  static const int32_t cuda = aoti_torch_device_type_cuda();
  if (device.type == cpu) return nullptr;
  if (device.type != cuda) return native_stream(device.index);
  static const auto function = reinterpret_cast<CurrentStream>(
      loaded("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream"));
  if (function == nullptr)
    raise(
        OCTAVO_UNSUPPORTED,
        "the current stream: expected a torch whose libtorch_cuda.so has "
        "aoti_torch_get_current_cuda_stream, found none; install torch 2.11 or later for CUDA 13");
  void *stream = nullptr;
  TORCH_ERROR_CODE_CHECK(function(device.index, &stream));
  return stream;
}

bool is_captured(const Device &device) {
  if (!device.has_graphs) return false;
  const IsCapturing function = is_capturing();
  int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  return function != nullptr && function(current_stream(device), &status) == 0 && status != 0;
}

void StreamOrder::wait(const Device &device) {
  if (is_captured(device)) return;
  check(memory_->synchronize(ctx_), "synchronize");
  wrote_.store(kNone, std::memory_order_relaxed);
  read_.store(kNone, std::memory_order_relaxed);
}

}  // namespace octavo::core
