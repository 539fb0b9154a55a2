/* kernels/cuda/gemm.h: what the parts of gemm share.
 *
 * A product takes the first of these ways that can do it: cuBLASLt with scales and bias; cuBLASLt,
 * then a launch that finishes d in place; cuBLASLt into f32 tiles, each finished on its way to d;
 * the reference kernel. Operands that cuBLASLt does not take as they are become another dtype
 * first, part by part. kernels/cuda/gemm_state.h says when a way is reported to the host.
 */
#pragma once

#include "kernels/check/calls.h"
#include "kernels/cuda/gemm_state.h"
#include "kernels/cuda/launch.h"

namespace octavo::cuda {

/* Of a tile of f32 sums of operands as they are; half as many bytes as cuBLASLt's own workspace
 * hold at least 128 rows of so many columns, so that its borders are borders of 128 x 128 blocks.
 */
constexpr int64_t kTileCols = 1024;
inline uint64_t tile_bytes(const Context &context) {
  return context.gemm.workspace / 2;
}

/* The workspace of a call, from its first multiple of 256 on. */
struct GemmWorkspace {
  char *blas;
  float *tile; /* for what a product in parts keeps of each part */
  uint64_t tile_bytes;
  char *a_scales; /* arranged for cuBLASLt */
  char *b_scales;
};
GemmWorkspace split_workspace(const Context &context, const octavo_gemm &c);

/* How a way ended. */
enum class Outcome {
  kDone,
  kFailed,     /* *status says how */
  kImpossible, /* nothing has been written but to the workspace */
};

/* The scale modes of a product by cuBLASLt. */
struct Scaling {
  int32_t a = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  int32_t b = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
};

/* What one call of cuBLASLt does of a product, and what launches of our own do before and after it.
 */
struct Way {
  Scaling scaling;
  uint32_t dtype = 0; /* that operands of another one are converted to; 0: both stay as they are */
  bool scales_later = false;
  bool bias_later = false;
  bool by_tiles = false;

  bool finishes() const { return scales_later || bias_later || by_tiles; }
};

/* The product by this way, d in as many parts as the workspace makes necessary. */
Outcome multiply_parts(Launcher &l, GemmState &state, const octavo_gemm &c, const Way &way,
                       octavo_status *status);

/* d = a b^T with scales, bias and accumulate as one call of cuBLASLt. c.bias must be one that the
 * epilogue takes. */
Outcome multiply_once(Launcher &l, GemmState &state, const octavo_gemm &c, const Scaling &scaling,
                      const GemmWorkspace &workspace, octavo_status *status);

/* Where the scales of both operands are as cuBLASLt wants them, arranged in one launch where they
 * are elsewhere; only of block modes. */
struct ScalePointers {
  const void *a;
  const void *b;
};
ScalePointers arrange_scales(Launcher &l, const octavo_gemm &c, const Scaling &scaling,
                             const GemmWorkspace &workspace);

/* Any of the ways through cuBLASLt; on kImpossible *why says for which reason. */
Outcome multiply_by_blas(Launcher &l, GemmState &state, const octavo_gemm &c, octavo_status *status,
                         Detour *why);

}  // namespace octavo::cuda
