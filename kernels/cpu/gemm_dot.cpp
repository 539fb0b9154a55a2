/* gemm by pairs of bf16: all of a packed first, then b panel by panel.
 *
 * A panel of b (32 columns by up to 2048 of K, 128 KiB) is packed when its turn comes and stays in
 * the second cache while all rows of a pass it, so b's decoded form never reaches memory. K is cut
 * into parts of that length; sums are kept in between, which changes no bit of a chain.
 *
 * Workspace, within what the fp32 path needs (4 bytes for each element of a and of b): a's rows as
 * pairs, and for each panel of b an area of its own. Work on one range of panels uses the area of
 * its first: packed pairs, then sums of rows.
 */
#include "kernels/cpu/gemm.h"

namespace octavo {
namespace {

constexpr int64_t kPart = 2048; /* of K; a multiple of every block and at most 64 blocks long */
static_assert(kPart / kMxBlock <= BlockScales::kBlocks);

/* Rows of a lie a power of two apart no more: twelve of them would share few sets of the cache. */
constexpr int64_t kRowPadding = 16; /* pairs */
constexpr int64_t kPaddedFrom = 64; /* of K; the workspace has room for padding from here on */

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
};

/* The range of a row of a: behind the row where that is padded, else measured anew. */
DotRange *range_behind(const DotPlan &p, int64_t row) {
  return reinterpret_cast<DotRange *>(p.a + row * p.a_stride + p.pairs);
}
static_assert(sizeof(DotRange) <= kRowPadding * sizeof(uint32_t));

DotRange range_of_rows(const DotLoops &dot, const DotPlan &p, int64_t row, int rows) {
  DotRange all;
  for (int i = 0; i < rows; ++i) {
    const bool is_padded = p.a_stride > p.pairs;
    merge(&all, is_padded ? *range_behind(p, row + i)
                          : dot.measure(p.a + (row + i) * p.a_stride, p.pairs));
  }
  return all;
}

/* Up to kPackedRows rows of a. */
void pack_some_rows(const DotLoops &dot, const octavo_gemm &c, const DotPlan &p, int64_t first,
                    int rows) {
  const bool is_k_major_a = is_k_major(c, OCTAVO_GEMM_A_KM);
  if (is_k_major_a) {
    dot.pack_k_major_rows(element(*c.a, 0, first), c.a->stride * dtype_bytes(c.a->dtype), rows,
                          p.shape.k, p.a + first * p.a_stride, p.a_stride);
  }
  for (int64_t row = first; row < first + rows; ++row) {
    uint32_t *out = p.a + row * p.a_stride;
    const DotRange range = is_k_major_a
                               ? dot.measure(out, p.pairs)
                               : dot.pack_row(c.a->dtype, element(*c.a, row, 0), p.shape.k, out);
    if (p.a_stride > p.pairs) *range_behind(p, row) = range;
  }
}

octavo_status pack_rows(const Context &context, const octavo_gemm &c, const DotPlan &p) {
  const int64_t groups = divide_up(p.shape.m, kPackedRows);
  const int64_t grain = divide_up(kGrainElements, p.shape.k * kPackedRows);
  return context.for_ranges(groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * kPackedRows;
      const int64_t rest = p.shape.m - first;
      pack_some_rows(*context.level->dot, c, p, first,
                     rest < kPackedRows ? static_cast<int>(rest) : kPackedRows);
    }
  });
}

/* Few rows of a as [pair][rows], at the end of the first panel's area, which packed pairs and sums
 * of so few rows leave free. */
uint32_t *thin_rows(const DotPlan &p) {
  return reinterpret_cast<uint32_t *>(p.areas + p.area_bytes) - p.shape.m * p.pairs;
}

void interleave_rows(const DotPlan &p) {
  uint32_t *out = thin_rows(p);
  for (int64_t pair = 0; pair < p.pairs; ++pair) {
    for (int64_t row = 0; row < p.shape.m; ++row) *out++ = p.a[row * p.a_stride + pair];
  }
}

/* The work on panels [first, end) of one thread. */
class PanelWork {
 public:
  PanelWork(const Context &context, const octavo_gemm &c, const DotPlan &p, int64_t area)
      : dot_(*context.level->dot),
        level_(*context.level),
        c_(c),
        p_(p),
        packed_(reinterpret_cast<uint32_t *>(p.areas + area * p.area_bytes)),
        kept_(reinterpret_cast<float *>(packed_ + kDotCols * kPart / 2)),
        has_row_scales_(!has_blocks(c.a_scale_inv) && RowScales(c).is_scaled()),
        is_plain_(c.a->dtype == OCTAVO_BF16 || c.b->dtype == OCTAVO_BF16) {
    /* Where K has several parts, so many rows have room for their sums. */
    const int64_t room = p.area_bytes - kDotCols * kPart * 2;
    chunk_ = p.shape.k <= kPart ? p.shape.m : room / (kDotCols * 4) / kDotRows * kDotRows;
  }

  /* At most kThinRows rows of a, no scales along K, and no packing; false: some product may not be
   * exact, and nothing has been written. */
  bool thin_panel(int64_t col) {
    const int cols = p_.shape.n - col < kDotCols ? static_cast<int>(p_.shape.n - col) : kDotCols;
    const int rows = static_cast<int>(p_.shape.m);
    const octavo_tensor &b = *c_.b;
    alignas(64) float sums[kThinRows * kDotCols];
    range_ = dot_.thin[rows - 1](thin_rows(p_), b.dtype, element(b, col, 0),
                                 b.stride * dtype_bytes(b.dtype), cols, p_.shape.k, sums);
    if (!is_exact(0, rows)) return false;
    set_cols(col, cols);
    finish(sums, 0, rows, col, cols);
    return true;
  }

  template <typename Tiles>
  void panel(int64_t col, Tiles &&tiles) {
    const int cols = p_.shape.n - col < kDotCols ? static_cast<int>(p_.shape.n - col) : kDotCols;
    set_cols(col, cols);
    for (int64_t top = 0; top < p_.shape.m; top += chunk_) {
      const int64_t bottom = p_.shape.m - top < chunk_ ? p_.shape.m : top + chunk_;
      for (int64_t k = 0; k < p_.shape.k; k += kPart) {
        pack(col, cols, k);
        tiles.set_part(col, cols, k, part_);
        for (int64_t row = top; row < bottom; row += kDotRows) {
          const int rows = bottom - row < kDotRows ? static_cast<int>(bottom - row) : kDotRows;
          alignas(64) float fresh[kDotRows * kDotCols];
          float *sums = p_.shape.k <= kPart ? fresh : kept_ + (row - top) * kDotCols;
          const uint32_t *a = p_.a + row * p_.a_stride + k / 2;
          tiles.add(row, rows, a, p_.a_stride, packed_, divide_up(part_, 2), k > 0,
                    is_exact(row, rows), sums);
          if (k + part_ == p_.shape.k) finish(sums, row, rows, col, cols);
        }
      }
    }
  }

 private:
  void set_cols(int64_t col, int cols) {
    if (has_row_scales_) RowScales(c_).cols(col, cols, col_scales_);
    if (c_.bias == nullptr) return;
    level_.load(c_.bias->dtype, element(*c_.bias, 0, col), cols, bias_);
    for (int i = cols; i < kDotCols; ++i) bias_[i] = 0.0f;
  }

  void pack(int64_t col, int cols, int64_t k) {
    const octavo_tensor &b = *c_.b;
    const int64_t stride = b.stride * dtype_bytes(b.dtype);
    part_ = p_.shape.k - k < kPart ? p_.shape.k - k : kPart;
    range_ = is_k_major(c_, OCTAVO_GEMM_B_KN)
                 ? dot_.pack_k_major_panel(element(b, k, col), stride, cols, part_, packed_)
                 : dot_.pack_panel(b.dtype, element(b, col, k), stride, cols, part_, packed_);
  }

  bool is_exact(int64_t row, int rows) const {
    return !is_plain_ || has_exact_products(range_of_rows(dot_, p_, row, rows), range_);
  }

  void finish(const float *sums, int64_t row, int rows, int64_t col, int cols) {
    float row_scales[kDotRows];
    if (has_row_scales_) RowScales(c_).rows(row, rows, row_scales);
    const octavo_tensor &d = *c_.d;
    dot_.finish(sums, rows, cols,
                {has_row_scales_ ? row_scales : nullptr, col_scales_,
                 c_.bias == nullptr ? nullptr : bias_, element(d, row, col),
                 d.stride * dtype_bytes(d.dtype), d.dtype, c_.bias_after != 0, c_.accumulate != 0});
  }

  const DotLoops &dot_;
  const Level &level_;
  const octavo_gemm &c_;
  const DotPlan &p_;
  uint32_t *packed_;
  float *kept_;
  bool has_row_scales_; /* one multiplier for each element of d */
  bool is_plain_;       /* bf16, whose products may not be exact */
  int64_t chunk_;
  int64_t part_ = 0; /* elements of K in packed_ */
  DotRange range_;   /* of packed_ */
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

template <typename Tiles>
octavo_status multiply(const Context &context, const octavo_gemm &c, const DotPlan &p,
                       bool is_thin) {
  const int64_t panels = divide_up(p.shape.n, kDotCols);
  return context.for_ranges(panels, 1, [&](int64_t first, int64_t end) {
    PanelWork work(context, c, p, first);
    Tiles tiles(*context.level->dot, c);
    for (int64_t panel = first; panel < end; ++panel) {
      if (is_thin && work.thin_panel(panel * kDotCols)) continue;
      work.panel(panel * kDotCols, tiles);
    }
  });
}

bool is_dot_dtype(uint32_t dtype) {
  return dtype == OCTAVO_BF16 || is_dtype(dtype, Dtypes::kFloat8);
}

}  // namespace

bool fits_dot_product(const Context &context, const octavo_gemm &c) {
  return context.level->dot != nullptr && gemm_shape(c).k > 0 && is_dot_dtype(c.a->dtype) &&
         is_dot_dtype(c.b->dtype);
}

octavo_status gemm_by_dot_product(const Context &context, const octavo_gemm &c) {
  const DotPlan plan(c);
  const octavo_status status = pack_rows(context, c, plan);
  if (status != OCTAVO_OK) return status;
  if (has_blocks(c.a_scale_inv)) return multiply<BlockTiles>(context, c, plan, false);
  const bool is_thin = plan.shape.m <= kThinRows && !is_k_major(c, OCTAVO_GEMM_B_KN);
  if (is_thin) interleave_rows(plan);
  return multiply<PlainTiles>(context, c, plan, is_thin);
}

}  // namespace octavo
