// Both functions are C: aoti_torch_get_current_cuda_stream is torch's stable ABI, and
// cuStreamIsCapturing is the driver's.
#include "stream.h"

#include <torch/headeronly/util/shim_utils.h>

#include <atomic>

#include "driver.h"
#include "error.h"

namespace octavo::core {
namespace {

using CurrentStream = AOTITorchError (*)(int32_t device, void **stream);
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

}  // namespace

void *current_stream(const Device &device) {
  static const int32_t cuda = aoti_torch_device_type_cuda();
  if (device.type != cuda) return nullptr;
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

bool is_captured(const Device &device, void *stream) {
  static const int32_t cpu = aoti_torch_device_type_cpu();
  if (device.type == cpu) return false;
  const IsCapturing function = is_capturing();
  int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  return function != nullptr && function(stream, &status) == 0 && status != 0;
}

}  // namespace octavo::core
