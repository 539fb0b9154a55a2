/* kernels/cuda/capture_mode.h: what a thread's calls mean to captures, for as long as it lives.
 *
 * Launches are made in relaxed mode: the first one of a kernel loads its code, which a capture in
 * another mode forbids. So are questions for events, by a thread that captures nothing.
 */
#pragma once

#include <cuda_runtime.h>

namespace octavo::cuda {

class CaptureMode {
 public:
  explicit CaptureMode(cudaStreamCaptureMode mode) : mode_(mode) {
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~CaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureMode(const CaptureMode &) = delete;
  CaptureMode &operator=(const CaptureMode &) = delete;

 private:
  cudaStreamCaptureMode mode_;
};

}  // namespace octavo::cuda
