/* kernels/cuda/device/walk.cuh: every thread of a grid takes its share of a range or of a matrix.
 */
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
/* Rows, where x walks along them. */
__device__ inline int64_t first_row() {
  return static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
}
__device__ inline int64_t row_step() {
  return static_cast<int64_t>(gridDim.y) * blockDim.y;
}
__device__ inline unsigned thread_of_block() {
  return threadIdx.y * blockDim.x + threadIdx.x;
}
__device__ inline unsigned block_of_grid() {
  return blockIdx.y * gridDim.x + blockIdx.x;
}

/* The place of a thread that walks through all elements of a matrix in the order of rows. It
 * divides once, not at every step. */
class ElementWalk {
 public:
  __device__ ElementWalk(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
    if (cols < 1) {
      rows_ = 0;
      return;
    }
    row = first_index() / cols;
    col = first_index() % cols;
    rows_of_step_ = index_step() / cols;
    cols_of_step_ = index_step() % cols;
  }
  __device__ bool is_inside() const { return row < rows_; }
  __device__ void next() {
    row += rows_of_step_;
    col += cols_of_step_;
    if (col < cols_) return;
    col -= cols_;
    ++row;
  }

  int64_t row = 0;
  int64_t col = 0;

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t rows_of_step_ = 0;
  int64_t cols_of_step_ = 0;
};

}  // namespace octavo::cuda
