/* kernels/cpu/gemm_dot.h: what both ways through a product by pairs of bf16 share.
 *
 * Workspace, within what the fp32 path needs (4 bytes for each element of a and of b): an area for
 * each panel of 32 columns of b, then a's rows as pairs.
 */
#pragma once

#include "kernels/cpu/gemm.h"

namespace octavo {

constexpr int64_t kPart = 2048; /* of K; a multiple of every block and at most 64 blocks long */
static_assert(kPart / kMxBlock <= BlockScales::kBlocks);

/* Rows of a are not a power of two apart: twelve of them would share few sets of the cache. */
constexpr int64_t kRowPadding = 16; /* pairs */
constexpr int64_t kPaddedFrom = 64; /* of K; the workspace has room for padding from here on */

/* Below it, a grain of work: multiplications and additions. */
constexpr int64_t kGrainProducts = 1 << 20;

struct DotPlan {
  GemmShape shape;
  int64_t pairs;    /* of K */
  int64_t a_stride; /* pairs */
  uint32_t *a;
  char *areas; /* of panels */
  int64_t area_bytes;

  DotPlan(const octavo_gemm &c)
      : shape(gemm_shape(c)),
        pairs(divide_up(shape.k, 2)),
        a_stride(pairs + (shape.k < kPaddedFrom ? 0 : kRowPadding)),
        areas(static_cast<char *>(c.workspace)),
        area_bytes(kDotCols * shape.k * static_cast<int64_t>(sizeof(float))) {
    a = reinterpret_cast<uint32_t *>(areas + divide_up(shape.n, kDotCols) * area_bytes);
  }

  int64_t panels() const { return divide_up(shape.n, kDotCols); }
  int cols_of(int64_t col) const {
    return shape.n - col < kDotCols ? static_cast<int>(shape.n - col) : kDotCols;
  }
  int64_t part_of(int64_t k) const { return shape.k - k < kPart ? shape.k - k : kPart; }
  uint32_t *area(int64_t panel) const {
    return reinterpret_cast<uint32_t *>(areas + panel * area_bytes);
  }
};

/* The range of a row of a: after the row where that is padded, else measured anew. */
inline DotRange *range_behind(const DotPlan &p, int64_t row) {
  return reinterpret_cast<DotRange *>(p.a + row * p.a_stride + p.pairs);
}
static_assert(sizeof(DotRange) <= kRowPadding * sizeof(uint32_t));

inline DotRange range_of_rows(const DotLoops &dot, const DotPlan &p, int64_t row, int rows) {
  DotRange all;
  for (int i = 0; i < rows; ++i) {
    const bool is_padded = p.a_stride > p.pairs;
    merge(&all, is_padded ? *range_behind(p, row + i)
                          : dot.measure(p.a + (row + i) * p.a_stride, p.pairs));
  }
  return all;
}

/* b's columns from `col` on, `part` of K from `k` on. */
inline DotRange pack_part(const DotLoops &dot, const octavo_gemm &c, int64_t col, int cols,
                          int64_t k, int64_t part, uint32_t *out) {
  const octavo_tensor &b = *c.b;
  const int64_t stride = b.stride * dtype_bytes(b.dtype);
  if (is_packed(c)) {
    return dot.decode_codes(b.dtype, element(b, col, 0) + k * kDotCols, part, out);
  }
  if (is_k_major(c, OCTAVO_GEMM_B_KN)) {
    return dot.pack_k_major_panel(element(b, k, col), stride, cols, part, out);
  }
  return dot.pack_panel(b.dtype, element(b, col, k), stride, cols, part, out);
}

/* Whether products of these rows with a panel of range `b` are exact. */
inline bool is_exact(const DotLoops &dot, const octavo_gemm &c, const DotPlan &p, int64_t row,
                     int rows, const DotRange &b) {
  const bool is_plain = c.a->dtype == OCTAVO_BF16 || c.b->dtype == OCTAVO_BF16;
  return !is_plain || has_exact_products(range_of_rows(dot, p, row, rows), b);
}

/* From the sums of tiles to d, for one panel after the other. */
class DotOutput {
 public:
  DotOutput(const Level &level, const octavo_gemm &c)
      : level_(level), c_(c), is_scaled_(!has_blocks(c.a_scale_inv) && RowScales(c).is_scaled()) {}

  void set_cols(int64_t col, int cols) {
    col_ = col;
    cols_ = cols;
    if (is_scaled_) RowScales(c_).cols(col, cols, col_scales_);
    if (c_.bias == nullptr) return;
    level_.load(c_.bias->dtype, element(*c_.bias, 0, col), cols, bias_);
    for (int i = cols; i < kDotCols; ++i) bias_[i] = 0.0f;
  }

  void finish(const float *sums, int64_t row, int rows) const {
    float row_scales[kDotRows];
    if (is_scaled_) RowScales(c_).rows(row, rows, row_scales);
    const octavo_tensor &d = *c_.d;
    level_.dot->finish(
        sums, rows, cols_,
        {is_scaled_ ? row_scales : nullptr, col_scales_, c_.bias == nullptr ? nullptr : bias_,
         element(d, row, col_), d.stride * dtype_bytes(d.dtype), d.dtype, c_.bias_after != 0,
         c_.accumulate != 0});
  }

 private:
  const Level &level_;
  const octavo_gemm &c_;
  bool is_scaled_; /* one multiplier for each element of d */
  int64_t col_ = 0;
  int cols_ = 0;
  float col_scales_[kMaxTileCols];
  float bias_[kDotCols];
};

/* Tiles without scales along K. */
class PlainTiles {
 public:
  PlainTiles(const DotLoops &dot, const octavo_gemm &) : dot_(dot) {}
  void set_part(int64_t, int, int64_t, int64_t) {}
  void add(int64_t, int rows, const uint32_t *a, int64_t stride, const uint32_t *b, int64_t pairs,
           bool continues, bool is_exact, float *sums) const {
    (is_exact ? dot_.exact : dot_.ordered)[rows - 1](a, stride, b, pairs, continues, sums);
  }

 private:
  const DotLoops &dot_;
};

/* Tiles with block scales; both operands are FP8. */
class BlockTiles {
 public:
  BlockTiles(const DotLoops &dot, const octavo_gemm &c) : dot_(dot), scales_(c, kDotCols) {}
  void set_part(int64_t col, int cols, int64_t k, int64_t part) {
    first_ = k / scales_.length();
    count_ = divide_up(part, scales_.length());
    scales_.pack_cols(col, cols, first_, count_);
  }
  void add(int64_t row, int rows, const uint32_t *a, int64_t stride, const uint32_t *b,
           int64_t pairs, bool continues, bool, float *sums) {
    scales_.pack_rows(row, rows, first_, count_);
    dot_.block[rows - 1](a, stride, b, pairs, scales_.length() / 2, scales_.of_rows(),
                         scales_.of_cols(), continues, sums);
  }

 private:
  const DotLoops &dot_;
  BlockScales scales_;
  int64_t first_ = 0;
  int64_t count_ = 0;
};

/* For many threads and few panels: b packed whole first, then strips of rows with panels. a's
 * rows are packed. */
bool shares_panels(const Context &context, const DotPlan &p);
octavo_status multiply_shared(const Context &context, const octavo_gemm &c, const DotPlan &p);

}  // namespace octavo
