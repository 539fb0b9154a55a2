/* kernels/cuda/device/gemm_scales.cuh: block scales in the order in which cuBLASLt reads them.
 *
 * Ours are a matrix with the blocks of a row side by side. cuBLASLt wants, for 1 x 128, the rows of
 * a block side by side; for 128 x 128, rows of a multiple of four; for E8M0, tiles of 128 rows and
 * 4 blocks in which rows 32 apart are neighbours (cuBLAS manual, "1D Block Scaling Factors
 * Layout"). What is beyond the matrix is 0.
 */
#pragma once

#include "kernels/check/granularity.h"
#include "kernels/cuda/device/dequantize.cuh"

namespace octavo::cuda {

enum class ScaleOrder : uint32_t { kRows, kPaddedRows, kTiles };

/* One operand's; `count` elements are written. */
struct Arrangement {
  ScaleInv from;
  void *to;
  int64_t rows;   /* of the operand */
  int64_t blocks; /* along K */
  int64_t count;
  ScaleOrder order;
};

constexpr int64_t kScaleTileRows = 128;
constexpr int64_t kScaleTileBlocks = 4;

__device__ inline void arrange_scale(const Arrangement &a, int64_t i) {
  if (a.order == ScaleOrder::kRows) {
    static_cast<float *>(a.to)[i] = a.from.at(i % a.rows, i / a.rows * kLongBlock);
    return;
  }
  if (a.order == ScaleOrder::kPaddedRows) {
    const int64_t width = (a.blocks + 3) / 4 * 4;
    const int64_t block = i % width;
    static_cast<float *>(a.to)[i] =
        block < a.blocks ? a.from.at(i / width * kLongBlock, block * kLongBlock) : 0.0f;
    return;
  }
  const int64_t across = (a.blocks + kScaleTileBlocks - 1) / kScaleTileBlocks;
  const int64_t tile = i / (kScaleTileRows * kScaleTileBlocks);
  const int64_t within = i % (kScaleTileRows * kScaleTileBlocks);
  const int64_t row = tile / across * kScaleTileRows + within % 16 / 4 * 32 + within / 16;
  const int64_t block = tile % across * kScaleTileBlocks + within % 4;
  const auto *codes = static_cast<const uint8_t *>(a.from.data);
  const int64_t from = a.from.granularity == OCTAVO_BLOCK_32X32 ? row / kMxBlock : row;
  static_cast<uint8_t *>(a.to)[i] =
      row < a.rows && block < a.blocks ? codes[from * a.from.stride + block] : uint8_t{0};
}

/* blockIdx.y: which operand; one with count 0 is left as it is. */
[[maybe_unused]] static __global__ void arrange_scales_kernel(Arrangement a, Arrangement b) {
  /* Two loops: a choice of one of the arguments would copy both to local memory. */
  if (blockIdx.y == 0) {
    for (int64_t i = first_index(); i < a.count; i += index_step()) arrange_scale(a, i);
  } else {
    for (int64_t i = first_index(); i < b.count; i += index_step()) arrange_scale(b, i);
  }
}

}  // namespace octavo::cuda
