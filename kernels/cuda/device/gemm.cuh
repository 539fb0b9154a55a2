/* kernels/cuda/device/gemm.cuh: the product of octavo/kernels.h without tensor cores.
 *
 * Each element is the fp32 chain over K in ascending order that kernels/cpu computes, so it has the
 * same bits, for operands of any dtype, layout, size and granularity. It is what tests compare with
 * and what remains where cuBLASLt has nothing; it is not fast.
 */
#pragma once

#include "kernels/cuda/device/gemm_finish.cuh"
#include "kernels/cuda/launch.h"

namespace octavo::cuda {

constexpr int kSide = 16; /* of a tile of d, and its depth along K */
static_assert(kMxBlock % kSide == 0 && kLongBlock % kSide == 0);

struct ReferenceGemm {
  AnyTensor a;
  AnyTensor b;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t block; /* elements of K with one scale each; 0: scales belong to rows */
  bool a_km;
  bool b_kn;
  ScaleInv a_scale; /* of blocks; rows are the finish's */
  ScaleInv b_scale;
  Finish finish;
};

[[maybe_unused]] static __global__ void __launch_bounds__(kSide *kSide)
    reference_gemm_kernel(ReferenceGemm g) {
  __shared__ float a_tile[kSide][kSide + 1];
  __shared__ float b_tile[kSide][kSide + 1];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const int64_t across = (g.n + kSide - 1) / kSide;
  const int64_t tiles = (g.m + kSide - 1) / kSide * across;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first_row = tile / across * kSide;
    const int64_t first_col = tile % across * kSide;
    const int64_t row = first_row + y;
    const int64_t col = first_col + x;
    float sum = 0.0f;
    float part = 0.0f; /* of a block of K */
    for (int64_t k = 0; k < g.k; k += kSide) {
      const int64_t b_row = first_col + y;
      const bool has_a = row < g.m && k + x < g.k;
      const bool has_b = b_row < g.n && k + x < g.k;
      a_tile[y][x] = has_a ? g.a.load(g.a_km ? g.a.at(k + x, row) : g.a.at(row, k + x)) : 0.0f;
      b_tile[y][x] = has_b ? g.b.load(g.b_kn ? g.b.at(k + x, b_row) : g.b.at(b_row, k + x)) : 0.0f;
      __syncthreads();
      const int depth = g.k - k < kSide ? static_cast<int>(g.k - k) : kSide;
      if (row < g.m && col < g.n) {
        for (int i = 0; i < depth; ++i) part += a_tile[y][i] * b_tile[x][i];
        if (g.block != 0 && ((k + kSide) % g.block == 0 || k + kSide >= g.k)) {
          sum += part * (g.a_scale.at(row, k) * g.b_scale.at(col, k));
          part = 0.0f;
        }
      }
      __syncthreads();
    }
    if (row < g.m && col < g.n) g.finish.store(row, col, g.block != 0 ? sum : part);
  }
}

inline void launch_reference_gemm(Launcher &l, const octavo_gemm &c) {
  const GemmShape s = gemm_shape(c);
  const bool is_block = has_blocks(c.a_scale_inv);
  const ReferenceGemm g = {any_tensor(*c.a),
                           any_tensor(*c.b),
                           s.m,
                           s.n,
                           s.k,
                           is_block ? block_cols(c.a_scale_inv->granularity) : 0,
                           is_k_major(c, OCTAVO_GEMM_A_KM),
                           is_k_major(c, OCTAVO_GEMM_B_KN),
                           scale_inv_view(is_block ? c.a_scale_inv : nullptr),
                           scale_inv_view(is_block ? c.b_scale_inv : nullptr),
                           finish_of(c, !is_block, c.bias)};
  const int64_t tiles = divide_up(s.m, kSide) * divide_up(s.n, kSide);
  l.run(dim3(blocks_for(l.context(), tiles)), dim3(kSide, kSide), reference_gemm_kernel, g);
}

}  // namespace octavo::cuda
