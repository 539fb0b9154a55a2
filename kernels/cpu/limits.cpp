/* The panel order of a level, and the sizes of workspaces, which are the same on every level. */
#include "kernels/cpu/limits.h"

#include "kernels/check/calls.h"

namespace octavo {
namespace {

/* b as panels of tile_cols columns, then a as panels of tile_rows rows, all fp32 and k-major. The
 * size depends on M, N and K alone, and is linear in M, N (rounded up) and K. */
bool gemm_workspace(const void *, const octavo_gemm &c, uint64_t *bytes) {
  const GemmShape s = gemm_shape(c);
  int64_t size = 0;
  const int64_t cols = divide_up(s.n, kMaxTileCols) * kMaxTileCols;
  if (__builtin_add_overflow(cols, s.m, &size)) return false;
  if (__builtin_mul_overflow(size, s.k, &size)) return false;
  if (__builtin_mul_overflow(size, static_cast<int64_t>(sizeof(float)), &size)) return false;
  *bytes = static_cast<uint64_t>(size);
  return true;
}

/* All values between the two halves. */
uint64_t prologue_workspace(const void *, const octavo_prologue_call &c) {
  const octavo_tensor &in = *c.quantize->in;
  return static_cast<uint64_t>(in.rows) * static_cast<uint64_t>(in.cols) *
         static_cast<uint64_t>(dtype_bytes(in.dtype));
}

}  // namespace

DeviceLimits limits_of(const Context &context) {
  const int64_t pack_rows = context.level->dot == nullptr ? 0 : kDotCols;
  return {context.level->id, pack_rows, nullptr, gemm_workspace, prologue_workspace};
}

}  // namespace octavo
