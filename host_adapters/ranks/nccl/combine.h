/* Sums and maxima of the ranks' parts on the device, in the order of the ranks. */
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace octavo::cuda::nccl {

struct Parts {
  const float *first; /* of rank 0; that of rank r begins r * count later */
  float *out;         /* [count]; apart from the parts */
  uint64_t count;
  uint32_t world;
  uint32_t is_max; /* 1: maximum, in which the first NaN stays; 0: sum */
};

/* One launch on the stream; at most `blocks` blocks. */
cudaError_t combine(const Parts &parts, unsigned blocks, cudaStream_t stream);

}  // namespace octavo::cuda::nccl
