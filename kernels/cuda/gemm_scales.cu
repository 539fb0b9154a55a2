/* Block scales on their way to cuBLASLt. */
#include "kernels/cuda/device/gemm_scales.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/gemm.h"

namespace octavo::cuda {
namespace {

bool is_block_mode(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
         mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F ||
         mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

int64_t rounded_up(int64_t count, int64_t size) {
  return divide_up(count, size) * size;
}

/* How the scales of an operand [rows, k] become what `mode` wants; count 0: they already are. */
Arrangement arrangement_of(const octavo_scale &s, int32_t mode, int64_t rows, int64_t k, void *to) {
  Arrangement a = {{s.data, s.stride, s.granularity}, to, rows, 0, 0, ScaleOrder::kTiles};
  a.blocks = divide_up(k, block_cols(s.granularity));
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      a.order = ScaleOrder::kRows;
      a.count = rows * a.blocks;
      break;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F: {
      a.order = ScaleOrder::kPaddedRows;
      const int64_t width = rounded_up(a.blocks, 4);
      const bool is_ready = s.stride == width && reinterpret_cast<uintptr_t>(s.data) % 16 == 0;
      a.count = is_ready ? 0 : divide_up(rows, kLongBlock) * width;
      break;
    }
    default: a.count = rounded_up(rows, kScaleTileRows) * rounded_up(a.blocks, kScaleTileBlocks);
  }
  return a;
}

}  // namespace

ScalePointers arrange_scales(Launcher &l, const octavo_gemm &c, const Scaling &scaling,
                             const GemmWorkspace &workspace) {
  const auto data = [](const octavo_scale *s) { return s == nullptr ? nullptr : s->data; };
  ScalePointers pointers = {data(c.a_scale_inv), data(c.b_scale_inv)};
  if (!is_block_mode(scaling.a)) return pointers;
  const GemmShape shape = gemm_shape(c);
  const Arrangement a =
      arrangement_of(*c.a_scale_inv, scaling.a, shape.m, shape.k, workspace.a_scales);
  const Arrangement b =
      arrangement_of(*c.b_scale_inv, scaling.b, shape.n, shape.k, workspace.b_scales);
  if (a.count > 0) pointers.a = a.to;
  if (b.count > 0) pointers.b = b.to;
  const int64_t most = a.count > b.count ? a.count : b.count;
  if (most > 0)
    l.run(dim3(blocks_for(l.context(), divide_up(most, kThreads)), 2), dim3(kThreads),
          arrange_scales_kernel, a, b);
  return pointers;
}

}  // namespace octavo::cuda
