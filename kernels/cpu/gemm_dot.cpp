/* gemm by pairs of bf16: all of a packed first, then b panel by panel.
 *
 * A panel of b (32 columns by up to 2048 of K, 128 KiB) is packed when its turn comes and stays in
 * the second cache while all rows of a pass it, so b's decoded form never reaches memory. K is cut
 * into parts of that length; sums are kept in between, which changes no bit of a chain.
 *
 * Work on one range of panels uses the area of its first: packed pairs, then sums of rows.
 */
#include "kernels/cpu/gemm_dot.h"

namespace octavo {
namespace {

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

/* With b in panel order so many rows are few: the next kThinRows of them find the panel in the
 * second cache, and to decode it once more costs less than to store it decoded. */
constexpr int kFewRows = 16;

/* Few rows of a as [pair][rows], one such piece for each kThinRows of them, at the end of the first
 * panel's area, which packed pairs and sums of so few rows leave free. */
uint32_t *thin_rows(const DotPlan &p) {
  return reinterpret_cast<uint32_t *>(p.areas + p.area_bytes) - p.shape.m * p.pairs;
}

void interleave_rows(const DotPlan &p) {
  uint32_t *out = thin_rows(p);
  for (int64_t first = 0; first < p.shape.m; first += kThinRows) {
    const int64_t end = p.shape.m - first < kThinRows ? p.shape.m : first + kThinRows;
    for (int64_t pair = 0; pair < p.pairs; ++pair) {
      for (int64_t row = first; row < end; ++row) *out++ = p.a[row * p.a_stride + pair];
    }
  }
}

/* The work on panels [first, end) of one thread. */
class PanelWork {
 public:
  PanelWork(const Context &context, const octavo_gemm &c, const DotPlan &p, int64_t area)
      : dot_(*context.level->dot),
        c_(c),
        p_(p),
        output_(*context.level, c),
        packed_(p.area(area)),
        kept_(reinterpret_cast<float *>(packed_ + kDotCols * kPart / 2)) {
    /* Where K has several parts, so many rows have room for their sums. */
    const int64_t room = p.area_bytes - kDotCols * kPart * 2;
    chunk_ = p.shape.k <= kPart ? p.shape.m : room / (kDotCols * 4) / kDotRows * kDotRows;
  }

  /* At most kThinRows rows of a, with b in panel order kFewRows, no scales along K, and no packing;
   * false: some product may not be exact, and nothing has been written. */
  bool thin_panel(int64_t col) {
    const int cols = p_.cols_of(col);
    const int rows = static_cast<int>(p_.shape.m);
    alignas(64) float sums[kFewRows * kDotCols];
    DotRange range;
    for (int row = 0; row < rows; row += kThinRows) {
      merge(&range, thin_sums(col, cols, row, few(rows - row), sums + row * kDotCols));
    }
    if (!is_exact(dot_, c_, p_, 0, rows, range)) return false;
    output_.set_cols(col, cols);
    for (int row = 0; row < rows; row += kThinRows) {
      output_.finish(sums + row * kDotCols, row, few(rows - row));
    }
    return true;
  }

  /* The same with at most BlockScales::kBlocks blocks along K. */
  void thin_block_panel(int64_t col, BlockScales *scales) {
    const int cols = p_.cols_of(col);
    const int rows = static_cast<int>(p_.shape.m);
    const octavo_tensor &b = *c_.b;
    scales->pack_cols(col, cols, 0, divide_up(p_.shape.k, scales->length()));
    alignas(64) float sums[kThinRows * kDotCols];
    const int64_t length = scales->length() / 2;
    if (is_packed(c_)) {
      dot_.packed_block[rows - 1](thin_rows(p_), b.dtype, element(b, col, 0), p_.shape.k, length,
                                  scales->of_rows(), scales->of_cols(), sums);
    } else {
      dot_.thin_block[rows - 1](thin_rows(p_), b.dtype, element(b, col, 0), b.stride, cols,
                                p_.shape.k, length, scales->of_rows(), scales->of_cols(), sums);
    }
    output_.set_cols(col, cols);
    output_.finish(sums, 0, rows);
  }

  template <typename Tiles>
  void panel(int64_t col, Tiles &&tiles) {
    const int cols = p_.cols_of(col);
    output_.set_cols(col, cols);
    for (int64_t top = 0; top < p_.shape.m; top += chunk_) {
      const int64_t bottom = p_.shape.m - top < chunk_ ? p_.shape.m : top + chunk_;
      for (int64_t k = 0; k < p_.shape.k; k += kPart) {
        const int64_t part = p_.part_of(k);
        const DotRange range = pack_part(dot_, c_, col, cols, k, part, packed_);
        tiles.set_part(col, cols, k, part);
        for (int64_t row = top; row < bottom; row += kDotRows) {
          const int rows = bottom - row < kDotRows ? static_cast<int>(bottom - row) : kDotRows;
          alignas(64) float fresh[kDotRows * kDotCols];
          float *sums = p_.shape.k <= kPart ? fresh : kept_ + (row - top) * kDotCols;
          tiles.add(row, rows, p_.a + row * p_.a_stride + k / 2, p_.a_stride, packed_,
                    divide_up(part, 2), k > 0, is_exact(dot_, c_, p_, row, rows, range), sums);
          if (k + part == p_.shape.k) output_.finish(sums, row, rows);
        }
      }
    }
  }

 private:
  static int few(int rows) { return rows < kThinRows ? rows : kThinRows; }

  DotRange thin_sums(int64_t col, int cols, int row, int rows, float *sums) const {
    const octavo_tensor &b = *c_.b;
    const uint32_t *a = thin_rows(p_) + row * p_.pairs;
    const void *from = element(b, col, 0);
    if (is_packed(c_)) return dot_.packed[rows - 1](a, b.dtype, from, p_.shape.k, sums);
    return dot_.thin[rows - 1](a, b.dtype, from, b.stride * dtype_bytes(b.dtype), cols, p_.shape.k,
                               sums);
  }

  const DotLoops &dot_;
  const octavo_gemm &c_;
  const DotPlan &p_;
  DotOutput output_;
  uint32_t *packed_;
  float *kept_;
  int64_t chunk_;
};

template <typename Tiles>
octavo_status multiply(const Context &context, const octavo_gemm &c, const DotPlan &p,
                       bool is_thin) {
  const int64_t grain = divide_up(kGrainProducts, p.shape.m * p.shape.k * kDotCols);
  return context.for_ranges(p.panels(), grain, [&](int64_t first, int64_t end) {
    PanelWork work(context, c, p, first);
    Tiles tiles(*context.level->dot, c);
    for (int64_t panel = first; panel < end; ++panel) {
      if (is_thin && work.thin_panel(panel * kDotCols)) continue;
      work.panel(panel * kDotCols, tiles);
    }
  });
}

octavo_status multiply_thin_blocks(const Context &context, const octavo_gemm &c, const DotPlan &p) {
  const int64_t grain = divide_up(kGrainProducts, p.shape.m * p.shape.k * kDotCols);
  return context.for_ranges(p.panels(), grain, [&](int64_t first, int64_t end) {
    PanelWork work(context, c, p, first);
    BlockScales scales(c, kDotCols);
    scales.pack_rows(0, static_cast<int>(p.shape.m), 0, divide_up(p.shape.k, scales.length()));
    for (int64_t panel = first; panel < end; ++panel) {
      work.thin_block_panel(panel * kDotCols, &scales);
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
  if (shares_panels(context, plan)) return multiply_shared(context, c, plan);
  /* With K 1 the packed pairs of a panel would take all of its area. */
  const int64_t few = is_packed(c) && !has_blocks(c.a_scale_inv) ? kFewRows : kThinRows;
  const bool is_thin = plan.shape.m <= few && plan.shape.k > 1 && !is_k_major(c, OCTAVO_GEMM_B_KN);
  if (is_thin) interleave_rows(plan);
  if (!has_blocks(c.a_scale_inv)) return multiply<PlainTiles>(context, c, plan, is_thin);
  const int64_t most = BlockScales::kBlocks * block_cols(c.a_scale_inv->granularity);
  if (is_thin && plan.shape.k <= most) return multiply_thin_blocks(context, c, plan);
  return multiply<BlockTiles>(context, c, plan, false);
}

}  // namespace octavo
