/* gemm: the verb, its workspace, and the reference kernel. */
#include "kernels/cuda/gemm.h"

#include "kernels/cuda/device/gemm.cuh"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

constexpr uint64_t kAlignment = 256; /* of cuBLASLt's workspace */

/* What the arranged scales of an operand [rows, k] may need: at most a byte for each row of 32
 * elements, in tiles of 128 x 4, or four for each 128. Over multiples of 64 it is affine in rows
 * and in k, and it never falls. False: more than 2^63. */
bool scale_bytes(int64_t rows, int64_t k, uint64_t *out) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows + 128, k / kMxBlock + 8, &bytes)) return false;
  *out = static_cast<uint64_t>(divide_up(bytes, 16)) * 16;
  return true;
}

bool has_codes(const octavo_gemm &c) {
  return OCTAVO_DTYPE_BITS(c.a->dtype) == 8 && OCTAVO_DTYPE_BITS(c.b->dtype) == 8;
}

}  // namespace

bool gemm_workspace(const void *device, const octavo_gemm &c, uint64_t *bytes) {
  const auto &context = *static_cast<const Context *>(device);
  const GemmShape shape = gemm_shape(c);
  uint64_t a = 0;
  uint64_t b = 0;
  if (has_codes(c) && (!scale_bytes(shape.m, shape.k, &a) || !scale_bytes(shape.n, shape.k, &b)))
    return false;
  const uint64_t fixed = kAlignment + context.gemm.workspace + tile_bytes(context);
  if (a + b > (UINT64_C(1) << 63) - fixed) return false;
  *bytes = fixed + a + b;
  return true;
}

GemmWorkspace split_workspace(const Context &context, const octavo_gemm &c) {
  const GemmShape shape = gemm_shape(c);
  GemmWorkspace w = {};
  auto *begin = static_cast<char *>(c.workspace);
  const auto beyond = reinterpret_cast<uintptr_t>(begin) % kAlignment;
  w.blas = beyond == 0 ? begin : begin + (kAlignment - beyond);
  w.tile = reinterpret_cast<float *>(w.blas + context.gemm.workspace);
  w.tile_bytes = tile_bytes(context);
  w.a_scales = w.blas + context.gemm.workspace + w.tile_bytes;
  uint64_t bytes = 0;
  if (has_codes(c)) scale_bytes(shape.m, shape.k, &bytes);
  w.b_scales = w.a_scales + bytes;
  return w;
}

octavo_status gemm(void *ctx, const octavo_gemm *c) {
  return run_verb<check_gemm>(ctx, "gemm", c, [&](Launcher &l) {
    const GemmShape shape = gemm_shape(*c);
    if (shape.m == 0 || shape.n == 0) return;
    Context &context = l.context();
    GemmState *state = nullptr;
    octavo_status status = gemm_state(context, c->stream, &state);
    if (status != OCTAVO_OK) return l.fail(status);
    if (context.gemm.is_reference) {
      tell_detour(context, *state, Detour::kForced, *c);
    } else if (shape.k > 0) {
      Detour why = Detour::kRefused;
      const Outcome outcome = multiply_by_blas(l, *state, *c, &status, &why);
      if (outcome != Outcome::kImpossible) return l.fail(status);
      tell_detour(context, *state, why, *c);
    }
    launch_reference_gemm(l, *c);
  });
}

}  // namespace octavo::cuda
