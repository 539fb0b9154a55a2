/* gemm by pairs of bf16 with fewer panels of b than threads may want: b is packed whole, each panel
 * into its area, and the work is shared out by strips of rows with panels.
 *
 * A strip keeps its sums on the stack while the parts of K pass, so a part of a panel comes to the
 * second cache once for a strip. An area has room for a panel twice; its range is at its end.
 */
#include "kernels/cpu/gemm_dot.h"

namespace octavo {
namespace {

constexpr int64_t kStripRows = 8 * kDotRows;
constexpr int64_t kManyPanels = 64; /* enough for one each of as many threads */
constexpr int64_t kSharedFrom = 64; /* of K; an area has room for a range from here on */

DotRange *range_of_panel(const DotPlan &p, int64_t panel) {
  return reinterpret_cast<DotRange *>(p.area(panel + 1)) - 1;
}

octavo_status pack_panels(const Context &context, const octavo_gemm &c, const DotPlan &p) {
  const int64_t grain = divide_up(kGrainElements, p.shape.k * kDotCols);
  return context.for_ranges(p.panels(), grain, [&](int64_t first, int64_t end) {
    for (int64_t panel = first; panel < end; ++panel) {
      const int64_t col = panel * kDotCols;
      DotRange all;
      for (int64_t k = 0; k < p.shape.k; k += kPart) {
        merge(&all, pack_part(*context.level->dot, c, col, p.cols_of(col), k, p.part_of(k),
                              p.area(panel) + k / 2 * kDotCols));
      }
      *range_of_panel(p, panel) = all;
    }
  });
}

/* Rows [top, bottom) with one panel. */
template <typename Tiles>
void multiply_strip(const DotLoops &dot, const octavo_gemm &c, const DotPlan &p, int64_t panel,
                    int64_t top, int64_t bottom, Tiles *tiles, const DotOutput &output) {
  const int64_t col = panel * kDotCols;
  alignas(64) float kept[kStripRows * kDotCols];
  for (int64_t k = 0; k < p.shape.k; k += kPart) {
    const int64_t part = p.part_of(k);
    tiles->set_part(col, p.cols_of(col), k, part);
    for (int64_t row = top; row < bottom; row += kDotRows) {
      const int rows = bottom - row < kDotRows ? static_cast<int>(bottom - row) : kDotRows;
      float *sums = kept + (row - top) * kDotCols;
      tiles->add(row, rows, p.a + row * p.a_stride + k / 2, p.a_stride,
                 p.area(panel) + k / 2 * kDotCols, divide_up(part, 2), k > 0,
                 is_exact(dot, c, p, row, rows, *range_of_panel(p, panel)), sums);
      if (k + part == p.shape.k) output.finish(sums, row, rows);
    }
  }
}

template <typename Tiles>
octavo_status multiply_strips(const Context &context, const octavo_gemm &c, const DotPlan &p) {
  const int64_t strips = divide_up(p.shape.m, kStripRows);
  const int64_t grain = divide_up(kGrainProducts, kStripRows * p.shape.k * kDotCols);
  return context.for_ranges(p.panels() * strips, grain, [&](int64_t first, int64_t end) {
    DotOutput output(*context.level, c);
    Tiles tiles(*context.level->dot, c);
    for (int64_t item = first; item < end; ++item) {
      const int64_t panel = item / strips;
      const int64_t top = item % strips * kStripRows;
      const int64_t rest = p.shape.m - top;
      if (item == first || top == 0) {
        output.set_cols(panel * kDotCols, p.cols_of(panel * kDotCols));
      }
      multiply_strip(*context.level->dot, c, p, panel, top,
                     top + (rest < kStripRows ? rest : kStripRows), &tiles, output);
    }
  });
}

}  // namespace

bool shares_panels(const Context &context, const DotPlan &p) {
  return context.parallel != nullptr && p.panels() < kManyPanels && p.shape.m > kStripRows &&
         p.shape.k >= kSharedFrom;
}

octavo_status multiply_shared(const Context &context, const octavo_gemm &c, const DotPlan &p) {
  const octavo_status status = pack_panels(context, c, p);
  if (status != OCTAVO_OK) return status;
  if (has_blocks(c.a_scale_inv)) return multiply_strips<BlockTiles>(context, c, p);
  return multiply_strips<PlainTiles>(context, c, p);
}

}  // namespace octavo
