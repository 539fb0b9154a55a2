/* The arithmetic of the collectives, equal in every bit to that of octavo_ranks. */
#include "host_adapters/ranks/nccl/combine.h"

#include "kernels/cuda/capture_mode.h"

namespace octavo::cuda::nccl {
namespace {

constexpr unsigned kThreads = 256;

__global__ void __launch_bounds__(kThreads) combine_kernel(Parts p) {
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.count; i += step) {
    float all = p.first[i];
    for (uint32_t rank = 1; rank < p.world; ++rank) {
      const float one = p.first[rank * p.count + i];
      if (p.is_max == 0) {
        all += one;
      } else if (all == all && !(all >= one)) { /* not a NaN yet, and less or unordered */
        all = one;
      }
    }
    p.out[i] = all;
  }
}

}  // namespace

cudaError_t combine(const Parts &parts, unsigned blocks, cudaStream_t stream) {
  const uint64_t wanted = (parts.count + kThreads - 1) / kThreads;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(wanted < blocks ? static_cast<unsigned>(wanted) : blocks);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  const CaptureMode relaxed(cudaStreamCaptureModeRelaxed);
  return cudaLaunchKernelEx(&config, combine_kernel, parts);
}

}  // namespace octavo::cuda::nccl
