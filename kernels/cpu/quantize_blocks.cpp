/* quantize with block granularities: every block of the input has the amax of its own elements.
 *
 * A thread takes a band of 128 rows, in which all blocks of both granularities end; so it sees all
 * of a block, and no scale has two writers. The rows of a band are measured and cast first; tiles
 * for out_t follow, from the cache. Where both outputs have square blocks their codes are the same,
 * and out_t is out turned over.
 */
#include "kernels/cpu/block_rules.h"
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/quantize_tile.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

constexpr int64_t kMaxBlocks = kBandCols / kMxBlock; /* along a row of a band */
constexpr int64_t kMaxSteps = kBandRows / kMxBlock;  /* along a column */
constexpr int64_t kPiece = 2048; /* elements of a row that stay in the first cache */

/* One output and its scales. */
struct Output {
  const octavo_tensor *codes; /* null: none */
  const octavo_scale *scales;

  bool exists() const { return codes != nullptr; }
  bool is_square() const { return exists() && block_rows(scales->granularity) > 1; }
};

/* The call, and what follows from it for every band. */
struct Plan {
  const octavo_quantize &c;
  Output out;
  Output out_t;
  Source source;
  BlockRule rule;
  int64_t length; /* of a block, along a row */
  uint32_t dtype; /* of the codes */
  bool past_caches;

  bool keeps_positive() const { return (c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0; }
};

/* Scales of the square blocks of a band, as multipliers before the cast. */
using SquareScales = float[kMaxSteps][kMaxBlocks];

/* Codes of `count` elements of one row whose blocks run along it; col is where one begins. */
void cast_row_blocks(const Context &context, const Plan &plan, int64_t row, int64_t col,
                     int64_t count, const float *scales, uint8_t *codes) {
  for_source(context, plan.source, row, col, count,
             [&](int64_t first, int64_t length, uint32_t dtype, const void *values) {
               context.level->casts.quantize_blocks(dtype, plan.dtype, values, length, plan.length,
                                                    scales + first / plan.length, codes + first);
             });
  if (plan.keeps_positive()) {
    keep_positive_part(context, plan.source, row, col, count, plan.dtype, codes);
  }
}

uint8_t *code_at(const Output &output, int64_t row, int64_t col) {
  return reinterpret_cast<uint8_t *>(element(*output.codes, row, col));
}

/* A row of a band: measured, and where out has a scale for each row, cast at once, piece by piece.
 * `squares` collects the amax of square blocks. */
ValueStats cast_measured_row(const Context &context, const Plan &plan, const Tile &band,
                             int64_t row, int32_t *squares) {
  const bool casts = plan.out.exists() && !plan.out.is_square();
  const CastLoops &loops = context.level->casts;
  ValueStats stats;
  for (int64_t first = 0; first < band.cols; first += kPiece) {
    const int64_t count = band.cols - first < kPiece ? band.cols - first : kPiece;
    const int64_t col = band.col + first;
    int32_t amax_bits[kPiece / kMxBlock];
    for_source(context, plan.source, row, col, count,
               [&](int64_t start, int64_t length, uint32_t dtype, const void *values) {
                 merge(&stats, loops.measure_blocks(dtype, values, length, plan.length,
                                                    amax_bits + start / plan.length));
               });
    const int64_t blocks = divide_up(count, plan.length);
    int32_t *seen = squares + first / plan.length;
    for (int64_t i = 0; i < blocks; ++i) seen[i] = seen[i] < amax_bits[i] ? amax_bits[i] : seen[i];
    if (!casts) continue;
    float scales[kPiece / kMxBlock];
    const octavo_scale &s = *plan.out.scales;
    store_scales(plan.rule, amax_bits, blocks, s, row * s.stride + col / plan.length, 1, scales);
    cast_row_blocks(context, plan, row, col, count, scales, code_at(plan.out, row, col));
  }
  return stats;
}

/* All rows of a band, and the scales of its square blocks. */
ValueStats cast_band_rows(const Context &context, const Plan &plan, const Tile &band,
                          SquareScales &square_scales) {
  ValueStats stats;
  const int64_t blocks = divide_up(band.cols, plan.length);
  const int64_t first_col = band.col / plan.length;
  for (int64_t first = 0; first < band.rows; first += plan.length) {
    const int64_t end = band.rows - first < plan.length ? band.rows : first + plan.length;
    int32_t squares[kMaxBlocks] = {};
    for (int64_t row = first; row < end; ++row) {
      merge(&stats, cast_measured_row(context, plan, band, band.row + row, squares));
    }
    float *scales = square_scales[first / plan.length];
    const int64_t step = (band.row + first) / plan.length;
    if (plan.out_t.is_square()) {
      const octavo_scale &s = *plan.out_t.scales;
      store_scales(plan.rule, squares, blocks, s, first_col * s.stride + step, s.stride, scales);
    }
    if (!plan.out.is_square()) continue;
    const octavo_scale &s = *plan.out.scales;
    store_scales(plan.rule, squares, blocks, s, step * s.stride + first_col, 1, scales);
    for (int64_t row = band.row + first; row < band.row + end; ++row) {
      cast_row_blocks(context, plan, row, band.col, band.cols, scales,
                      code_at(plan.out, row, band.col));
    }
  }
  return stats;
}

/* The scales of blocks along columns, for the rows of one block of a tile. */
void store_column_scales(const Context &context, const Plan &plan, const Tile &t, int64_t first,
                         int64_t end, float *scales) {
  int32_t amax_bits[kTileCols] = {};
  for (int64_t row = first; row < end; ++row) {
    for_source(context, plan.source, t.row + row, t.col, t.cols,
               [&](int64_t, int64_t count, uint32_t dtype, const void *values) {
                 context.level->casts.measure_each(dtype, values, count, amax_bits);
               });
  }
  const octavo_scale &s = *plan.out_t.scales;
  store_scales(plan.rule, amax_bits, t.cols, s, t.col * s.stride + (t.row + first) / plan.length,
               s.stride, scales);
}

/* out_t, from codes of its own. */
void cast_tile_turned(const Context &context, const Plan &plan, const Tile &t,
                      const SquareScales &square_scales, int64_t first_block) {
  alignas(64) uint8_t codes[kBandRows * kTileCols];
  float scales[kTileCols];
  for (int64_t first = 0; first < t.rows; first += plan.length) {
    const int64_t end = t.rows - first < plan.length ? t.rows : first + plan.length;
    const bool is_square = plan.out_t.is_square();
    if (!is_square) store_column_scales(context, plan, t, first, end, scales);
    for (int64_t row = first; row < end; ++row) {
      uint8_t *to = codes + row * kTileCols;
      if (is_square) {
        cast_row_blocks(context, plan, t.row + row, t.col, t.cols,
                        square_scales[first / plan.length] + first_block, to);
        continue;
      }
      for_source(context, plan.source, t.row + row, t.col, t.cols,
                 [&](int64_t, int64_t count, uint32_t dtype, const void *values) {
                   context.level->casts.quantize_each(dtype, plan.dtype, values, count, scales, to);
                 });
      if (plan.keeps_positive()) {
        keep_positive_part(context, plan.source, t.row + row, t.col, t.cols, plan.dtype, to);
      }
    }
  }
  turn_codes(context, codes, kTileCols, t, *plan.out_t.codes, plan.past_caches);
}

ValueStats cast_band(const Context &context, const Plan &plan, const Tile &band) {
  SquareScales square_scales;
  const ValueStats stats = cast_band_rows(context, plan, band, square_scales);
  if (!plan.out_t.exists()) return stats;
  if (plan.out.is_square() && plan.out_t.is_square()) {
    turn_codes(context, code_at(plan.out, band.row, band.col), plan.out.codes->stride, band,
               *plan.out_t.codes, plan.past_caches);
    return stats;
  }
  for_tiles(band, kTileCols, [&](const Tile &t) {
    cast_tile_turned(context, plan, t, square_scales, (t.col - band.col) / plan.length);
  });
  return stats;
}

/* The scales of blocks that hold padding only; rows x cols elements are no padding. */
void store_padding_scales(const Plan &plan, const Output &output, int64_t rows, int64_t cols) {
  if (!output.exists()) return;
  const octavo_scale &s = *output.scales;
  const int64_t used_rows = divide_up(rows, block_rows(s.granularity));
  const int64_t used_cols = divide_up(cols, plan.length);
  const int64_t all_rows = divide_up(output.codes->rows, block_rows(s.granularity));
  const int64_t all_cols = divide_up(output.codes->cols, plan.length);
  const int32_t zero = 0;
  float unused = 0.0f;
  for (int64_t row = 0; row < all_rows; ++row) {
    for (int64_t col = row < used_rows ? used_cols : 0; col < all_cols; ++col) {
      store_scales(plan.rule, &zero, 1, s, row * s.stride + col, 1, &unused);
    }
  }
}

}  // namespace

octavo_status quantize_blocks(const Context &context, const octavo_quantize &c) {
  const octavo_scale *scales = c.out != nullptr ? c.out_scale_inv : c.out_t_scale_inv;
  const Plan plan = {c,
                     {c.out, c.out_scale_inv},
                     {c.out_t, c.out_t_scale_inv},
                     source_of(c),
                     {c.rule, c.format_max, c.eps, largest_scale_of(c.in->dtype)},
                     block_cols(scales->granularity),
                     c.out != nullptr ? c.out->dtype : c.out_t->dtype,
                     goes_past_caches(tensor_bytes(*c.in) + output_bytes(c))};
  const int64_t rows = c.in->rows;
  const int64_t cols = c.in->cols;
  SharedStats shared;
  const octavo_status status = for_bands(
      context, *c.in, [&](const Tile &band) { shared.add(cast_band(context, plan, band)); });
  if (status != OCTAVO_OK) return status;
  store_padding_scales(plan, plan.out, rows, cols);
  store_padding_scales(plan, plan.out_t, cols, rows);
  clear_padding(c.out, rows, cols);
  clear_padding(c.out_t, cols, rows);
  shared.publish(c.amax, c.nonfinite);
  return OCTAVO_OK;
}

}  // namespace octavo
