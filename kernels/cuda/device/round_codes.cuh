/* kernels/cuda/device/round_codes.cuh: codes that were rounded to nearest even, rounded again at
 * random.
 *
 * Blocks of 32 x 8 threads take tiles of 32 x 32 values. Transposed codes pass through shared
 * memory, so that neighbouring threads read and write neighbours.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/dequantize.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/format/rounding.h"

namespace octavo::cuda {

constexpr int kRoundTile = 32;
constexpr int kRoundRows = 8; /* of a tile at once */

struct RoundCodes {
  AnyTensor in;
  uint8_t *codes;
  int64_t codes_stride;
  ScaleInv scale;
  const float *count;
  uint64_t key;
  bool is_e4m3;
  bool turns;
};

[[maybe_unused]] static __global__ void round_codes_kernel(RoundCodes c) {
  __shared__ uint8_t turned[kRoundTile][kRoundTile + 4];
  const RandomKey key = random_key(c.key, step_of(c.count), c.turns ? 1 : 0);
  const int64_t across = (c.in.cols + kRoundTile - 1) / kRoundTile;
  const int64_t tiles = (c.in.rows + kRoundTile - 1) / kRoundTile * across;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first_row = tile / across * kRoundTile, first_col = tile % across * kRoundTile;
    for (int r = y; r < kRoundTile; r += kRoundRows) {
      const int64_t row = first_row + r, col = first_col + x;
      if (row >= c.in.rows || col >= c.in.cols) continue;
      const int64_t code_row = c.turns ? col : row, code_col = c.turns ? row : col;
      const auto place =
          static_cast<uint64_t>(code_row * (c.turns ? c.in.rows : c.in.cols) + code_col);
      const uint8_t code = round_code(c.is_e4m3, c.in.load(c.in.at(row, col)),
                                      c.scale.at(code_row, code_col), key, place);
      if (c.turns)
        turned[x][r] = code;
      else
        c.codes[row * c.codes_stride + col] = code;
    }
    if (!c.turns) continue;
    __syncthreads();
    for (int r = y; r < kRoundTile; r += kRoundRows) {
      const int64_t row = first_col + r, col = first_row + x;
      if (row < c.in.cols && col < c.in.rows) c.codes[row * c.codes_stride + col] = turned[r][x];
    }
    __syncthreads();
  }
}

}  // namespace octavo::cuda
