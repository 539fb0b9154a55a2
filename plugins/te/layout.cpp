// Where the pieces of `saved` and of workspaces lie, for any M.
#include "layout.h"

#include <numeric>

namespace octavo::te {
namespace {

// Rows and columns of a tensor that share one scale; 0: all of them.
struct Block {
  int64_t rows;
  int64_t cols;
};

Block block_of(uint32_t granularity) {
  switch (granularity) {
    case OCTAVO_BLOCK_1X128: return {1, 128};
    case OCTAVO_BLOCK_128X128: return {128, 128};
    case OCTAVO_BLOCK_1X32: return {1, 32};
    case OCTAVO_BLOCK_32X32: return {32, 32};
    default: return {0, 0};
  }
}

int64_t divide_up(int64_t n, int64_t by) {
  return by == 0 ? 1 : (n + by - 1) / by;
}

uint32_t scale_dtype(uint32_t granularity) {
  return block_of(granularity).cols == 32 ? OCTAVO_E8M0FNU : OCTAVO_F32;
}

octavo_scale scales(Carver &carver, uint32_t granularity, int64_t rows, int64_t cols) {
  const auto width = static_cast<int64_t>(OCTAVO_DTYPE_BITS(scale_dtype(granularity)) / 8);
  return scale_of(
      granularity, cols,
      carver.take(scale_rows(granularity, rows) * scale_cols(granularity, cols) * width));
}

// Rows of `saved` come in multiples of this: whole blocks along M where its transpose is kept, of
// the kernels' alignment in any case, and never less than what keeps a scale_inv behind codes
// aligned for every K.
int64_t saved_multiple(const octavo_session &s, Keeps keeps) {
  const int64_t block = keeps == Keeps::kColumns ? block_of(s.recipe.operand_granularity).cols : 0;
  return std::lcm(std::max(plugin::kSavedRows, block), s.device.alignment());
}

// Bytes of the scales of x in `saved` for each of its rows, rounded up; 0 per tensor.
int64_t saved_scale_bytes(const octavo_session &s, Keeps keeps, int64_t kp) {
  if (!s.recipe.blocks()) return 0;
  const int64_t length = block_of(s.recipe.operand_granularity).cols;
  const auto width =
      static_cast<int64_t>(OCTAVO_DTYPE_BITS(scale_dtype(s.recipe.operand_granularity)) / 8);
  return keeps == Keeps::kRows ? divide_up(kp, length) * width : divide_up(kp * width, length);
}

}  // namespace

int64_t scale_rows(uint32_t granularity, int64_t rows) {
  return divide_up(rows, block_of(granularity).rows);
}

int64_t scale_cols(uint32_t granularity, int64_t cols) {
  return divide_up(cols, block_of(granularity).cols);
}

octavo_scale scale_of(uint32_t granularity, int64_t cols, void *data) {
  const int64_t stride = granularity == OCTAVO_PER_TENSOR ? 0 : scale_cols(granularity, cols);
  return {data, stride, scale_dtype(granularity), granularity};
}

Keeps keeps(const octavo_session &s, uint32_t linear) {
  if (s.weight_of(linear).is_frozen()) return Keeps::kNothing;
  switch (s.recipe.wgrad) {
    case Operands::kFp8: return Keeps::kColumns;
    case Operands::kDequantized: return Keeps::kRows;
    default: return Keeps::kNothing;
  }
}

Shape shape_of(const octavo_session &s, uint32_t linear, int64_t m) {
  const Parameter &w = s.weight_of(linear);
  Shape shape = plugin::shape_of(s.device, m, w.rows, w.cols);
  const int64_t multiple = saved_multiple(s, keeps(s, linear));
  shape.saved_m = divide_up(m, multiple) * multiple;
  return shape;
}

Saved saved_of(const octavo_session &s, uint32_t linear, const Shape &shape, void *saved) {
  const Keeps kept = keeps(s, linear);
  const uint32_t granularity = s.recipe.operand_granularity;
  const int64_t rows = kept == Keeps::kRows ? shape.saved_m : shape.kp;
  const int64_t cols = kept == Keeps::kRows ? shape.kp : shape.saved_m;
  char *scales_at = static_cast<char *>(saved) + rows * cols;
  Saved out{};
  out.codes = {saved, rows, cols, cols, OCTAVO_E4M3FN, 0};
  out.scale_inv = scale_of(granularity, cols, scales_at);
  if (!s.recipe.blocks()) return out;
  const auto width = static_cast<int64_t>(OCTAVO_DTYPE_BITS(scale_dtype(granularity)) / 8);
  const int64_t used = rows * scale_cols(granularity, cols) * width;
  out.rest = scales_at + used;
  out.rest_bytes =
      static_cast<uint64_t>(shape.saved_m * saved_scale_bytes(s, kept, shape.kp) - used);
  return out;
}

octavo_extent saved_extent(const octavo_session &s, uint32_t linear) {
  const Keeps kept = keeps(s, linear);
  if (kept == Keeps::kNothing) return {1, 0, 0};
  const int64_t kp = s.device.aligned(s.weight_of(linear).cols);
  return {static_cast<uint64_t>(saved_multiple(s, kept)),
          static_cast<uint64_t>(kp + saved_scale_bytes(s, kept, kp)),
          s.recipe.blocks() ? 0 : sizeof(float)};
}

ForwardPieces forward_pieces(const octavo_session &s, const Shape &shape, Carver &carver) {
  ForwardPieces p{};
  if (s.recipe.casts_x()) {
    p.x_scale_inv = scales(carver, s.recipe.operand_granularity, shape.mp, shape.kp);
    if (s.device.pads()) p.bias = carver.tensor(1, shape.np, OCTAVO_F32);
    if (s.device.pads()) p.y = carver.tensor(shape.mp, shape.np, OCTAVO_F32);
    p.x = carver.tensor(shape.mp, shape.kp, OCTAVO_E4M3FN);
  }
  p.kernel = carver.take(0);
  return p;
}

BackwardPieces backward_pieces(const octavo_session &s, uint32_t linear, const Shape &shape,
                               Carver &carver) {
  const Recipe &r = s.recipe;
  const bool frozen = s.weight_of(linear).is_frozen();
  const bool fp8_wgrad = r.wgrad == Operands::kFp8 && !frozen;
  BackwardPieces p{};
  p.column_sums = carver.tensor(1, shape.n, OCTAVO_F32);
  p.amax = static_cast<float *>(carver.take(sizeof(float)));
  if (r.casts_dy()) {
    p.dy_scale_inv = scales(carver, r.operand_granularity, shape.mp, shape.np);
    p.dy = carver.tensor(shape.mp, shape.np, r.gradient_dtype);
  }
  if (fp8_wgrad) {
    p.dy_t_scale_inv =
        r.blocks() ? scales(carver, r.operand_granularity, shape.np, shape.mp) : p.dy_scale_inv;
    p.dy_t = carver.tensor(shape.np, shape.mp, r.gradient_dtype);
    if (s.device.pads()) p.dw = carver.tensor(shape.np, shape.kp, OCTAVO_F32);
  }
  if (r.dgrad == Operands::kFp8 && s.device.pads())
    p.dx = carver.tensor(shape.mp, shape.kp, OCTAVO_F32);
  if (r.dgrad == Operands::kDequantized) p.w = carver.tensor(shape.n, shape.k, OCTAVO_F32);
  if (r.wgrad == Operands::kDequantized && !frozen)
    p.x = carver.tensor(shape.m, shape.k, OCTAVO_F32);
  p.kernel = carver.take(0);
  return p;
}

WeightPieces weight_pieces(const octavo_session &s, const Parameter &w, Carver &carver) {
  const int64_t n = s.device.aligned(w.rows);
  const int64_t k = s.device.aligned(w.cols);
  WeightPieces p{};
  p.rows = {nullptr, n, k, k, OCTAVO_E4M3FN, 0};
  if (s.recipe.telemetry && !s.recipe.reads_weight_rows()) {
    p.rows_scale_inv = scales(carver, s.recipe.weight_granularity, n, k);
    p.rows = carver.tensor(n, k, OCTAVO_E4M3FN);
  }
  if (w.is_packed) p.rows = carver.tensor(n, k, OCTAVO_E4M3FN);
  p.kernel = carver.take(0);
  return p;
}

}  // namespace octavo::te
