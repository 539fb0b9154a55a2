/* quantize with one scale per row: every row of out has the amax of its own elements, and so has
 * every row of out_t, which is a column of the input.
 *
 * Without out_t a row is measured and cast at once. With it, all of the input is measured before
 * anything is cast, and what is where scales will be is the amax until the very end.
 */
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/quantize_tile.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

float scale_of(const octavo_quantize &c, float amax) {
  return scale_by_rule(c.rule, amax < c.eps ? c.eps : amax, 1.0f, c.format_max, 0);
}

/* Codes of a part of a row that has one scale. */
void cast_part(const Context &context, const octavo_quantize &c, const Source &source, int64_t row,
               int64_t col, int64_t count, float scale) {
  char *out = element(*c.out, row, col);
  for_source(context, source, row, col, count,
             [&](int64_t first, int64_t length, uint32_t dtype, const void *values) {
               context.level->casts.quantize(dtype, c.out->dtype, values, length, scale,
                                             out + first * dtype_bytes(c.out->dtype));
             });
  if ((c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0) {
    keep_positive_part(context, source, row, col, count, c.out->dtype, out);
  }
}

octavo_status quantize_one_by_one(const Context &context, const octavo_quantize &c,
                                  const Source &source, SharedStats *shared) {
  const int64_t cols = source.in.cols;
  const int64_t grain = divide_up(kGrainElements, cols > 0 ? cols : 1);
  return context.for_ranges(source.in.rows, grain, [&](int64_t begin, int64_t end) {
    ValueStats stats;
    for (int64_t row = begin; row < end; ++row) {
      const ValueStats of_row = measure_part(context, source, row, 0, cols);
      const float scale = scale_of(c, bits_float(of_row.amax_bits));
      row_scale_inv(*c.out_scale_inv, row) = 1.0f / scale;
      cast_part(context, c, source, row, 0, cols, scale);
      merge(&stats, of_row);
    }
    shared->add(stats);
  });
}

/* Calls body(count, dtype, values) for row `row` of a tile. */
template <typename Body>
void with_tile_row(const Context &context, const Source &source, const Tile &t, int64_t row,
                   Body &&body) {
  for_source(context, source, t.row + row, t.col, t.cols,
             [&](int64_t, int64_t length, uint32_t dtype, const void *values) {
               body(length, dtype, values);
             });
}

octavo_status measure_rows_and_cols(const Context &context, const octavo_quantize &c,
                                    const Source &source, SharedStats *shared) {
  return for_bands(context, source.in, [&](const Tile &band) {
    ValueStats stats;
    for (int64_t row = 0; row < band.rows; ++row) {
      const ValueStats part = measure_part(context, source, band.row + row, band.col, band.cols);
      if (c.out != nullptr) {
        accumulate_max(&row_scale_inv(*c.out_scale_inv, band.row + row),
                       bits_float(part.amax_bits));
      }
      merge(&stats, part);
    }
    for_tiles(band, kTileCols, [&](const Tile &t) {
      int32_t amax_bits[kTileCols] = {};
      for (int64_t row = 0; row < t.rows; ++row) {
        with_tile_row(context, source, t, row, [&](int64_t count, uint32_t dtype, const void *v) {
          context.level->casts.measure_each(dtype, v, count, amax_bits);
        });
      }
      for (int64_t col = 0; col < t.cols; ++col) {
        accumulate_max(&row_scale_inv(*c.out_t_scale_inv, t.col + col), bits_float(amax_bits[col]));
      }
    });
    shared->add(stats);
  });
}

octavo_status cast_rows_and_cols(const Context &context, const octavo_quantize &c,
                                 const Source &source) {
  const uint32_t dtype = c.out_t->dtype;
  const int64_t bytes = dtype_bytes(dtype);
  const bool keeps_positive = (c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0;
  const bool past_caches = goes_past_caches(tensor_bytes(source.in) + output_bytes(c));
  return for_bands(context, source.in, [&](const Tile &band) {
    for (int64_t row = band.row; c.out != nullptr && row < band.row + band.rows; ++row) {
      cast_part(context, c, source, row, band.col, band.cols,
                scale_of(c, row_scale_inv(*c.out_scale_inv, row)));
    }
    const int64_t width = kTileCols / bytes;
    for_tiles(band, width, [&](const Tile &t) {
      alignas(64) uint8_t codes[kBandRows * kTileCols];
      float scales[kTileCols];
      for (int64_t col = 0; col < t.cols; ++col) {
        scales[col] = scale_of(c, row_scale_inv(*c.out_t_scale_inv, t.col + col));
      }
      for (int64_t row = 0; row < t.rows; ++row) {
        uint8_t *to = codes + row * width * bytes;
        with_tile_row(context, source, t, row, [&](int64_t count, uint32_t in, const void *v) {
          context.level->casts.quantize_each(in, dtype, v, count, scales, to);
        });
        if (keeps_positive) {
          keep_positive_part(context, source, t.row + row, t.col, t.cols, dtype, to);
        }
      }
      turn_codes(context, codes, width, t, *c.out_t, past_caches);
    });
  });
}

/* What measuring left becomes scales; rows of padding have the amax of zeros. */
void finish_scales(const octavo_quantize &c, const octavo_tensor *codes, const octavo_scale *s,
                   int64_t rows, bool holds_amax) {
  if (codes == nullptr) return;
  for (int64_t row = holds_amax ? 0 : rows; row < codes->rows; ++row) {
    float &value = row_scale_inv(*s, row);
    value = 1.0f / scale_of(c, row < rows ? value : 0.0f);
  }
}

}  // namespace

octavo_status quantize_rows(const Context &context, const octavo_quantize &c) {
  const Source source = source_of(c);
  const int64_t rows = source.in.rows;
  const int64_t cols = source.in.cols;
  SharedStats shared;
  octavo_status status = OCTAVO_OK;
  if (c.out_t == nullptr) {
    status = quantize_one_by_one(context, c, source, &shared);
  } else {
    for (int64_t row = 0; c.out != nullptr && row < rows; ++row) {
      row_scale_inv(*c.out_scale_inv, row) = 0.0f;
    }
    for (int64_t col = 0; col < cols; ++col) row_scale_inv(*c.out_t_scale_inv, col) = 0.0f;
    status = measure_rows_and_cols(context, c, source, &shared);
    if (status == OCTAVO_OK) status = cast_rows_and_cols(context, c, source);
  }
  if (status != OCTAVO_OK) return status;
  finish_scales(c, c.out, c.out_scale_inv, rows, c.out_t != nullptr);
  finish_scales(c, c.out_t, c.out_t_scale_inv, cols, true);
  clear_padding(c.out, rows, cols);
  clear_padding(c.out_t, cols, rows);
  shared.publish(c.amax, c.nonfinite);
  return OCTAVO_OK;
}

}  // namespace octavo
