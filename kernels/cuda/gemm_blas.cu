/* The ways of a product through cuBLASLt; which pairs of dtypes, scales, bias and output the
 * library takes is in its manual under "cublasLtMatmul" and "Narrow Precision Data Types Usage".
 */
#include "kernels/cuda/device/gemm_finish.cuh"
#include "kernels/cuda/device/reduce.cuh"
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

/* What one call of cuBLASLt does of c, and what a launch of our own does after it. */
struct Way {
  Scaling scaling;
  bool scales_later = false;
  bool bias_later = false;
  bool by_tiles = false;

  bool finishes() const { return scales_later || bias_later || by_tiles; }
};

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

/* Rows [first, first + count) of a K-contiguous operand, columns of another. */
octavo_tensor rows_of(const octavo_tensor &t, bool is_k_major, int64_t first, int64_t count) {
  octavo_tensor part = t;
  part.data = is_k_major ? element(t, 0, first) : element(t, first, 0);
  (is_k_major ? part.cols : part.rows) = count;
  return part;
}

octavo_tensor block_of(const octavo_tensor &t, int64_t row, int64_t rows, int64_t col,
                       int64_t cols) {
  return {element(t, row, col), rows, cols, t.stride, t.dtype, 0};
}

/* The scales of an operand's rows from `first` on, a multiple of 128. */
const octavo_scale *scales_from(const octavo_scale *s, int64_t first, octavo_scale *out) {
  if (s == nullptr) return nullptr;
  *out = *s;
  if (is_row_scaled(s)) out->data = static_cast<float *>(s->data) + first * s->stride;
  if (has_blocks(s)) out->data = scale_row(*s, first);
  return out;
}

void launch_finish(Launcher &l, const octavo_tensor &sums, const Finish &finish) {
  const int64_t count = sums.rows * sums.cols;
  l.run(dim3(blocks_for(l.context(), divide_up(count, kThreads))), dim3(kThreads),
        finish_gemm_kernel, any_tensor(sums), finish);
}

Outcome multiply_whole(Launcher &l, GemmState &state, const octavo_gemm &c, const Way &way,
                       octavo_status *status) {
  octavo_gemm call = c;
  if (way.scales_later) call.a_scale_inv = call.b_scale_inv = nullptr;
  if (way.bias_later) call.bias = nullptr;
  const Outcome outcome =
      multiply_once(l, state, call, way.scaling, split_workspace(l.context(), c), status);
  if (outcome != Outcome::kDone || !way.finishes()) return outcome;
  launch_finish(l, *c.d, finish_of(c, way.scales_later, c.bias));
  *status = l.status();
  return *status == OCTAVO_OK ? Outcome::kDone : Outcome::kFailed;
}

Outcome multiply_tiles(Launcher &l, GemmState &state, const octavo_gemm &c, const Way &way,
                       octavo_status *status) {
  const GemmShape shape = gemm_shape(c);
  const int64_t most_cols = shape.n < kTileCols ? shape.n : kTileCols;
  const auto elements = static_cast<int64_t>(tile_bytes(l.context()) / sizeof(float));
  const int64_t most_rows = elements / most_cols / kLongBlock * kLongBlock;
  const GemmWorkspace workspace = split_workspace(l.context(), c);
  for (int64_t row = 0; row < shape.m; row += most_rows) {
    const int64_t rows = shape.m - row < most_rows ? shape.m - row : most_rows;
    for (int64_t col = 0; col < shape.n; col += most_cols) {
      const int64_t cols = shape.n - col < most_cols ? shape.n - col : most_cols;
      const octavo_tensor a = rows_of(*c.a, is_k_major(c, OCTAVO_GEMM_A_KM), row, rows);
      const octavo_tensor b = rows_of(*c.b, is_k_major(c, OCTAVO_GEMM_B_KN), col, cols);
      octavo_scale scales[2] = {};
      octavo_gemm part = c;
      part.a = &a;
      part.b = &b;
      part.a_scale_inv = scales_from(c.a_scale_inv, row, &scales[0]);
      part.b_scale_inv = scales_from(c.b_scale_inv, col, &scales[1]);
      octavo_tensor d = block_of(*c.d, row, rows, col, cols);
      part.d = &d;
      octavo_gemm call = part;
      octavo_tensor tile = {workspace.tile, rows, cols, cols, OCTAVO_F32, 0};
      call.d = &tile;
      call.bias = nullptr;
      call.accumulate = 0;
      if (way.scales_later) call.a_scale_inv = call.b_scale_inv = nullptr;
      const Outcome outcome = multiply_once(l, state, call, way.scaling, workspace, status);
      /* All tiles of a call are of few kinds; where the first is possible and a later one is not,
       * d is half written, and the reference kernel would add to it twice. */
      if (outcome == Outcome::kImpossible && (row > 0 || col > 0)) {
        *status = report_error(l.context().caller, OCTAVO_UNSUPPORTED,
                               "gemm: cuBLASLt has an algorithm for the first part of a product, "
                               "but none for M = %lld, N = %lld of it; set "
                               "OCTAVO_CUDA_GEMM=reference",
                               static_cast<long long>(rows), static_cast<long long>(cols));
        return Outcome::kFailed;
      }
      if (outcome != Outcome::kDone) return outcome;
      const octavo_tensor bias =
          c.bias == nullptr ? octavo_tensor{} : block_of(*c.bias, 0, 1, col, cols);
      launch_finish(l, tile,
                    finish_of(part, way.scales_later, c.bias == nullptr ? nullptr : &bias));
      *status = l.status();
      if (*status != OCTAVO_OK) return Outcome::kFailed;
    }
  }
  return Outcome::kDone;
}

Outcome follow(Launcher &l, GemmState &state, const octavo_gemm &c, const Way &way,
               octavo_status *status) {
  if (!way.by_tiles) return multiply_whole(l, state, c, way, status);
  const Outcome outcome = multiply_tiles(l, state, c, way, status);
  if (outcome == Outcome::kDone) tell_detour(l.context(), state, Detour::kTiles, c);
  return outcome;
}

}  // namespace

Outcome multiply_by_blas(Launcher &l, GemmState &state, const octavo_gemm &c, octavo_status *status,
                         Detour *why) {
  const bool is_codes = is_float8(c.a->dtype) && is_float8(c.b->dtype);
  Way way;
  *why = Detour::kMixed;
  if (!is_codes && c.a->dtype != c.b->dtype) return Outcome::kImpossible;
  *why = Detour::kE5m2;
  if (c.a->dtype == OCTAVO_E5M2 && c.b->dtype == OCTAVO_E5M2) return Outcome::kImpossible;
  *why = Detour::kAlignment;
  if (is_codes && !is_aligned(c)) return Outcome::kImpossible;
  *why = Detour::kBlocks;
  const bool is_blocks = has_blocks(c.a_scale_inv);
  if (is_blocks && !scale_blocks(l.context(), c, &way.scaling)) return Outcome::kImpossible;
  *why = Detour::kRefused;
  if (!is_blocks) scale_rows(l.context(), c, &way);
  plan_output(c, true, &way);
  const Outcome outcome = follow(l, state, c, way, status);
  if (outcome != Outcome::kImpossible) return outcome;
  /* Without an algorithm for it, again with as little as can be asked for. */
  Way plain;
  plain.scaling = is_blocks ? way.scaling : Scaling{};
  plain.scales_later = !is_blocks && (c.a_scale_inv != nullptr || c.b_scale_inv != nullptr);
  plan_output(c, false, &plain);
  plain.by_tiles = true;
  return way.by_tiles && way.scales_later == plain.scales_later
             ? outcome
             : follow(l, state, c, plain, status);
}

}  // namespace octavo::cuda
