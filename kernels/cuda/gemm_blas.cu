/* The ways of a product through cuBLASLt; which pairs of dtypes, scales, bias and output the
 * library takes is in its manual under "cublasLtMatmul" and "Narrow Precision Data Types Usage".
 */
#include "kernels/cuda/gemm.h"

namespace octavo::cuda {
namespace {

bool is_float8(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}

/* FP8 on tensor cores wants sizes and addresses in multiples of 16 bytes, of those dimensions that
 * run along memory. */
bool is_aligned(const octavo_gemm &c) {
  const auto is_multiple = [](int64_t bytes) { return bytes % 16 == 0; };
  const auto is_address = [](const octavo_tensor &t) {
    return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  };
  const GemmShape shape = gemm_shape(c);
  const int64_t bytes = dtype_bytes(c.d->dtype);
  return is_multiple(shape.k) && is_multiple(c.a->stride) && is_multiple(c.b->stride) &&
         is_multiple(shape.n * bytes) && is_multiple(c.d->stride * bytes) && is_address(*c.a) &&
         is_address(*c.b) && is_address(*c.d);
}

/* Blocks: the library's modes, or none. */
bool scale_blocks(const Context &context, const octavo_gemm &c, Scaling *out) {
  const uint32_t a = c.a_scale_inv->granularity;
  const uint32_t b = c.b_scale_inv->granularity;
  if (is_mx_granularity(a)) {
    *out = {CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0};
    return context.capability >= 100;
  }
  const auto mode = [](uint32_t granularity) -> int32_t {
    return granularity == OCTAVO_BLOCK_1X128 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                             : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  };
  *out = {mode(a), mode(b)};
  /* M and N in multiples of four, so that the scales of neighbouring rows are aligned. */
  const GemmShape shape = gemm_shape(c);
  return context.capability == 90 && (a == OCTAVO_BLOCK_1X128 || b == OCTAVO_BLOCK_1X128) &&
         shape.m % 4 == 0 && shape.n % 4 == 0;
}

/* Scales of the whole tensor or of rows: in the call, or after it. */
void scale_rows(const Context &context, const octavo_gemm &c, Way *way) {
  const octavo_scale *a = c.a_scale_inv;
  const octavo_scale *b = c.b_scale_inv;
  if (!is_float8(c.a->dtype)) {
    way->scales_later = a != nullptr || b != nullptr;
    return;
  }
  if (!is_row_scaled(a) && !is_row_scaled(b)) return;
  way->scales_later = context.capability != 90 || !is_row_scaled(a) || !is_row_scaled(b) ||
                      a->stride != 1 || b->stride != 1;
  if (!way->scales_later)
    way->scaling = {CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
                    CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F};
}

/* Whether the library writes d's dtype for operands of `dtype`. */
bool has_output(uint32_t dtype, uint32_t d) {
  return d == OCTAVO_F32 || (is_float8(dtype) ? d == OCTAVO_BF16 || d == OCTAVO_F16 : d == dtype);
}

/* The epilogue's bias has d's dtype, but bf16 with FP8 operands and an f32 d. It is read in vectors
 * of 16 bytes, of which the heuristics know nothing (pytorch#194497). */
bool has_bias(const octavo_gemm &c) {
  const bool is_wide = is_float8(c.a->dtype) && c.d->dtype == OCTAVO_F32;
  if (reinterpret_cast<uintptr_t>(c.bias->data) % 16 != 0) return false;
  return c.bias->dtype == (is_wide ? uint32_t{OCTAVO_BF16} : c.d->dtype);
}

/* What follows for the output once it is known when scales are applied. */
void plan_output(const octavo_gemm &c, bool may_fuse, Way *way) {
  const bool is_f32 = c.d->dtype == OCTAVO_F32;
  const bool fits = has_output(c.a->dtype, c.d->dtype);
  if (c.bias != nullptr) {
    const bool one_rounding = is_f32 || c.bias_after == 0;
    way->bias_later = way->scales_later || !may_fuse || !fits || !one_rounding || !has_bias(c);
  }
  if (!way->scales_later && !way->bias_later) {
    way->by_tiles = !fits;
    return;
  }
  /* In place where d holds what the finish starts from, unrounded or rounded as it shall be. */
  const bool is_rounded_twice = c.bias_after != 0 && !way->scales_later;
  way->by_tiles = !fits || c.accumulate != 0 || !(is_f32 || is_rounded_twice);
}

/* What both operands are multiplied as; 0: as they are. All values of the dtypes that are converted
 * are values of it: those of FP8 of any other, those of bf16 and f16 of f32. f32 is multiplied in
 * f32, never TF32. */
uint32_t common_dtype(const octavo_gemm &c, Detour *why) {
  const bool has_codes[2] = {is_float8(c.a->dtype), is_float8(c.b->dtype)};
  if (has_codes[0] && has_codes[1]) {
    const bool is_e5m2 = c.a->dtype == OCTAVO_E5M2 && c.b->dtype == OCTAVO_E5M2;
    *why = is_e5m2 ? Detour::kE5m2 : Detour::kAlignment;
    return is_e5m2 || !is_aligned(c) ? uint32_t{OCTAVO_BF16} : 0;
  }
  *why = Detour::kMixed;
  if (c.a->dtype == c.b->dtype) return 0;
  if (has_codes[0]) return c.b->dtype;
  return has_codes[1] ? c.a->dtype : uint32_t{OCTAVO_F32};
}

/* Tells the host where the way is not the library's own. */
Outcome follow(Launcher &l, GemmState &state, const octavo_gemm &c, const Way &way, Detour why,
               octavo_status *status) {
  const Outcome outcome = multiply_parts(l, state, c, way, status);
  if (outcome != Outcome::kDone) return outcome;
  if (way.dtype != 0) {
    tell_detour(l.context(), state, why, c);
  } else if (way.by_tiles) {
    tell_detour(l.context(), state, Detour::kTiles, c);
  }
  return outcome;
}

}  // namespace

Outcome multiply_by_blas(Launcher &l, GemmState &state, const octavo_gemm &c, octavo_status *status,
                         Detour *why) {
  Way way;
  Detour converted = Detour::kMixed;
  way.dtype = common_dtype(c, &converted);
  *why = Detour::kBlocks;
  const bool is_blocks = has_blocks(c.a_scale_inv);
  if (is_blocks && (way.dtype != 0 || !scale_blocks(l.context(), c, &way.scaling)))
    return Outcome::kImpossible;
  *why = Detour::kRefused;
  /* What the library gets to see. */
  octavo_tensor a = *c.a;
  octavo_tensor b = *c.b;
  if (way.dtype != 0) a.dtype = b.dtype = way.dtype;
  octavo_gemm seen = c;
  seen.a = &a;
  seen.b = &b;
  if (!is_blocks) scale_rows(l.context(), seen, &way);
  plan_output(seen, true, &way);
  const Outcome outcome = follow(l, state, c, way, converted, status);
  if (outcome != Outcome::kImpossible) return outcome;
  /* Without an algorithm for it, again with as little as can be asked for. */
  Way plain;
  plain.dtype = way.dtype;
  plain.scaling = is_blocks ? way.scaling : Scaling{};
  plain.scales_later = !is_blocks && (c.a_scale_inv != nullptr || c.b_scale_inv != nullptr);
  plan_output(seen, false, &plain);
  plain.by_tiles = true;
  return way.by_tiles && way.scales_later == plain.scales_later
             ? outcome
             : follow(l, state, c, plain, converted, status);
}

}  // namespace octavo::cuda
