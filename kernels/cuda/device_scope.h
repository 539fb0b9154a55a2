/* kernels/cuda/device_scope.h: a device for as long as a call takes. */
#pragma once

#include <cuda_runtime.h>

namespace octavo::cuda {

/* Makes `device` the thread's; error() says whether that worked. */
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
    error_ = before_ == device ? cudaSuccess : cudaSetDevice(device);
    changed_ = before_ >= 0 && before_ != device;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope &) = delete;
  DeviceScope &operator=(const DeviceScope &) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = -1;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace octavo::cuda
