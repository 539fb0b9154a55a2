/* kernels/cuda/device/walk.cuh: every thread of a grid takes its share of a range. */
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace octavo::cuda {

/* Of a grid of tiles: which row of tiles this block is. */
__device__ inline int64_t row_tile() {
  return static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
}
__device__ inline int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t index_step() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace octavo::cuda
