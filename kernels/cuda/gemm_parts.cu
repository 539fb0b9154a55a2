/* A product in parts: operands converted, f32 sums, and the launch that finishes each part, all
 * within the fixed room that every call's workspace has for them.
 */
#include "kernels/cuda/device/gemm_finish.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/gemm.h"

namespace octavo::cuda {
namespace {

/* Rows and columns of d in one part, multiples of 16 but at the borders of d. */
struct Part {
  int64_t rows;
  int64_t cols;
};
constexpr int64_t kLeast = 16;
constexpr int64_t kMost = 4096;
/* As many columns or rows of sums, at least, where a smaller slab of an operand allows it. */
constexpr int64_t kWanted = 1024;

int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

int64_t rounded_up(int64_t count, int64_t size) {
  return divide_up(count, size) * size;
}

bool converts(const Way &way, const octavo_tensor &operand) {
  return way.dtype != 0 && operand.dtype != way.dtype;
}

/* Bytes of so many rows of a converted operand, either way round. */
int64_t slab_bytes(const Way &way, int64_t rows, int64_t k) {
  return rounded_up(rounded_up(rows, kLeast) * rounded_up(k, kLeast) * dtype_bytes(way.dtype), 256);
}

/* The largest parts whose slabs and sums fit; false: not even the smallest do. */
bool choose_part(const octavo_gemm &c, const Way &way, int64_t room, Part *out) {
  const GemmShape s = gemm_shape(c);
  *out = {s.m, s.n};
  if (way.dtype == 0 && !way.by_tiles) return true;
  if (way.dtype == 0) {
    out->cols = lesser(s.n, kTileCols);
    out->rows = room / 4 / out->cols / kLongBlock * kLongBlock;
    return true;
  }
  const bool has_a = converts(way, *c.a);
  const bool has_b = converts(way, *c.b);
  if (s.k > room / kLeast) return false;
  for (int64_t side = kMost; side >= kLeast; side /= 2) {
    Part p = {has_a ? lesser(s.m, side) : s.m, has_b ? lesser(s.n, side) : s.n};
    int64_t left = room;
    if (has_a) left -= slab_bytes(way, p.rows, s.k);
    if (has_b) left -= slab_bytes(way, p.cols, s.k);
    if (left < 0) continue;
    if (way.by_tiles) {
      /* What is not converted is cut as the sums need it. */
      int64_t *free = !has_b ? &p.cols : &p.rows;
      const int64_t other = !has_b ? p.rows : p.cols;
      const int64_t most = left / 4 / other;
      if (most < *free) {
        if (has_a && has_b) continue;
        *free = most / kLeast * kLeast;
        if (*free < (side > kLeast ? kWanted : kLeast)) continue;
      }
    }
    *out = p;
    return true;
  }
  return false;
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

/* The scales of an operand's rows from `first` on; of blocks, a multiple of 128. */
const octavo_scale *scales_from(const octavo_scale *s, int64_t first, octavo_scale *out) {
  if (s == nullptr) return nullptr;
  *out = *s;
  if (is_row_scaled(s)) out->data = static_cast<float *>(s->data) + first * s->stride;
  if (has_blocks(s)) out->data = scale_row(*s, first);
  return out;
}

/* Whether rows of a matrix can be read in runs of kPack elements. */
bool has_runs(const octavo_tensor &t) {
  const int64_t width = dtype_bytes(t.dtype) * kPack;
  const int64_t unit = lesser(width, 16);
  return t.cols % kPack == 0 && reinterpret_cast<uintptr_t>(t.data) % unit == 0 &&
         (t.rows <= 1 || t.stride * dtype_bytes(t.dtype) % unit == 0);
}

void launch_finish(Launcher &l, const octavo_tensor &sums, const octavo_tensor &d,
                   const Finish &finish) {
  const bool is_wide = has_runs(sums) && has_runs(d);
  const int64_t across = divide_up(sums.cols / (is_wide ? kPack : 1), kThreads);
  const unsigned blocks = blocks_for(l.context(), across * sums.rows);
  const auto width = static_cast<unsigned>(lesser(across, blocks));
  const auto height = static_cast<unsigned>(lesser(sums.rows, divide_up(blocks, width)));
  l.run(dim3(width, height), dim3(kThreads),
        is_wide ? finish_gemm_kernel<kPack> : finish_gemm_kernel<1>, any_tensor(sums), finish);
}

/* The workspace without what has been taken of its room for parts. */
void take(GemmWorkspace *w, int64_t bytes) {
  w->tile += bytes / static_cast<int64_t>(sizeof(float));
  w->tile_bytes -= static_cast<uint64_t>(bytes);
}

/* The slab of an operand in another dtype. Rows begin at multiples of 16 elements. */
octavo_tensor convert(Launcher &l, const Way &way, const octavo_tensor &slab, void *to) {
  const octavo_tensor out = {to, slab.rows, slab.cols, rounded_up(slab.cols, kLeast), way.dtype, 0};
  launch_finish(l, slab, out, {any_tensor(out), {}, {}, {}, false, false, false});
  return out;
}

}  // namespace

Outcome multiply_parts(Launcher &l, GemmState &state, const octavo_gemm &c, const Way &way,
                       octavo_status *status) {
  const GemmShape shape = gemm_shape(c);
  GemmWorkspace workspace = split_workspace(l.context(), c);
  Part most = {};
  if (!choose_part(c, way, static_cast<int64_t>(workspace.tile_bytes), &most))
    return Outcome::kImpossible;
  const bool a_km = is_k_major(c, OCTAVO_GEMM_A_KM);
  const bool b_kn = is_k_major(c, OCTAVO_GEMM_B_KN);
  void *slabs[2] = {workspace.tile, nullptr};
  if (converts(way, *c.a)) take(&workspace, slab_bytes(way, most.rows, shape.k));
  slabs[1] = workspace.tile;
  if (converts(way, *c.b)) take(&workspace, slab_bytes(way, most.cols, shape.k));
  octavo_tensor a = {};
  octavo_tensor b = {};
  for (int64_t row = 0; row < shape.m; row += most.rows) {
    const int64_t rows = lesser(shape.m - row, most.rows);
    a = rows_of(*c.a, a_km, row, rows);
    if (converts(way, a)) a = convert(l, way, a, slabs[0]);
    for (int64_t col = 0; col < shape.n; col += most.cols) {
      const int64_t cols = lesser(shape.n - col, most.cols);
      if (row == 0 || most.cols < shape.n) {
        b = rows_of(*c.b, b_kn, col, cols);
        if (converts(way, b)) b = convert(l, way, b, slabs[1]);
      }
      octavo_scale scales[2] = {};
      octavo_gemm part = c;
      part.a = &a;
      part.b = &b;
      part.a_scale_inv = scales_from(c.a_scale_inv, row, &scales[0]);
      part.b_scale_inv = scales_from(c.b_scale_inv, col, &scales[1]);
      octavo_tensor d = block_of(*c.d, row, rows, col, cols);
      part.d = &d;
      const octavo_tensor bias =
          c.bias == nullptr ? octavo_tensor{} : block_of(*c.bias, 0, 1, col, cols);
      if (c.bias != nullptr) part.bias = &bias;
      octavo_gemm call = part;
      octavo_tensor tile = {workspace.tile, rows, cols, cols, OCTAVO_F32, 0};
      if (way.by_tiles) {
        call.d = &tile;
        call.accumulate = 0;
      }
      if (way.bias_later || way.by_tiles) call.bias = nullptr;
      if (way.scales_later) call.a_scale_inv = call.b_scale_inv = nullptr;
      *status = l.status();
      if (*status != OCTAVO_OK) return Outcome::kFailed;
      const Outcome outcome = multiply_once(l, state, call, way.scaling, workspace, status);
      /* All parts of a call are of few kinds; where the first is possible and a later one is not,
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
      if (!way.finishes()) continue;
      launch_finish(l, *call.d, d, finish_of(part, way.scales_later, part.bias));
      *status = l.status();
      if (*status != OCTAVO_OK) return Outcome::kFailed;
    }
  }
  return Outcome::kDone;
}

}  // namespace octavo::cuda
