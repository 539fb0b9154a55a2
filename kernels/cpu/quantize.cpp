/* quantize: in -> codes and transposed codes, with amax, nonfinite and the current-scaling rule.
 *
 * With a given scale there is one pass over the input. With a rule there are two, and the first
 * must have seen every element before the second starts.
 */
#include <cstring>

#include "kernels/check/calls.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/fp4.h"
#include "kernels/cpu/quantize_tile.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

/* The codes of one row of a tile, or of a run; gives what its values are. */
ValueStats cast_part(const Context &context, const octavo_quantize &c, const Source &source,
                     int64_t row, int64_t col, int64_t count, float scale, bool past_caches,
                     void *out) {
  const uint32_t dtype = c.out != nullptr ? c.out->dtype : c.out_t->dtype;
  const CastLoops &casts = context.level->casts;
  const auto cast = past_caches ? casts.quantize_past_caches : casts.quantize;
  auto *to = static_cast<char *>(out);
  ValueStats stats;
  for_source(context, source, row, col, count,
             [&](int64_t first, int64_t length, uint32_t in_dtype, const void *values) {
               merge(&stats,
                     cast(in_dtype, dtype, values, length, scale, to + first * dtype_bytes(dtype)));
             });
  if ((c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) == 0) return stats;
  keep_positive_part(context, source, row, col, count, dtype, to);
  return stats;
}

/* out alone: run after run. */
octavo_status cast_runs(const Context &context, const octavo_quantize &c, const Source &source,
                        float scale, bool past_caches, SharedStats *shared) {
  const bool is_run = is_dense(source.in) && is_dense(*c.out) && source.in.cols == c.out->cols;
  const octavo_tensor in = is_run ? as_row(source.in) : source.in;
  const octavo_tensor out = is_run ? as_row(*c.out) : *c.out;
  const Source runs = {in, source.factor};
  return for_runs(context, in.rows, in.cols, [&](auto &&for_each_run) {
    ValueStats stats;
    for_each_run([&](int64_t row, int64_t col, int64_t count) {
      merge(&stats, cast_part(context, c, runs, row, col, count, scale, past_caches,
                              element(out, row, col)));
    });
    shared->add(stats);
  });
}

/* out_t without out: tile after tile, after all of the band was read, for the statistics. */
ValueStats cast_tiles(const Context &context, const octavo_quantize &c, const Source &source,
                      float scale, bool past_caches, const Tile &band) {
  const int64_t bytes = dtype_bytes(c.out_t->dtype);
  ValueStats stats;
  for (int64_t row = 0; past_caches && row < band.rows; ++row) {
    merge(&stats, measure_part(context, source, band.row + row, band.col, band.cols));
  }
  const int64_t width = kTileCols / bytes;
  alignas(64) uint8_t codes[kBandRows * kTileCols];
  for_tiles(band, width, [&](const Tile &t) {
    for (int64_t row = 0; row < t.rows; ++row) {
      merge(&stats, cast_part(context, c, source, t.row + row, t.col, t.cols, scale, false,
                              codes + row * width * bytes));
    }
    turn_codes(context, codes, width, t, *c.out_t, past_caches);
  });
  return stats;
}

/* out_t, and out where there is one: band after band. */
octavo_status cast_bands(const Context &context, const octavo_quantize &c, const Source &source,
                         float scale, bool past_caches, SharedStats *shared) {
  return for_bands(context, source.in, [&](const Tile &band) {
    if (c.out == nullptr) {
      return shared->add(cast_tiles(context, c, source, scale, past_caches, band));
    }
    ValueStats stats;
    for (int64_t row = 0; row < band.rows; ++row) {
      merge(&stats, cast_part(context, c, source, band.row + row, band.col, band.cols, scale, false,
                              element(*c.out, band.row + row, band.col)));
    }
    turn_codes(context, element(*c.out, band.row, band.col), c.out->stride, band, *c.out_t,
               past_caches);
    shared->add(stats);
  });
}

octavo_status quantize_tensor(const Context &context, const octavo_quantize &c) {
  octavo_status status = OCTAVO_OK;
  const Source source = source_of(c);
  const bool casts = c.out != nullptr || c.out_t != nullptr;
  const bool is_given =
      c.rule == OCTAVO_RULE_GIVEN || (c.counter != nullptr && *c.counter >= c.window);
  const bool wants_stats = c.amax != nullptr || c.nonfinite != nullptr;
  const bool measures_first = casts ? !is_given : wants_stats;
  SharedStats shared;
  if (measures_first) {
    status = measure_all(context, source, &shared);
    if (status != OCTAVO_OK) return status;
  }
  if (casts) {
    const float kept = c.scale == nullptr ? 1.0f : *c.scale;
    const float amax = shared.amax() < c.eps ? c.eps : shared.amax();
    const float scale = is_given ? kept : scale_by_rule(c.rule, amax, kept, c.format_max, 0);
    const bool past_caches = goes_past_caches(tensor_bytes(*c.in) + output_bytes(c));
    const auto cast = c.out_t == nullptr ? cast_runs : cast_bands;
    status = cast(context, c, source, scale, past_caches, &shared);
    if (status != OCTAVO_OK) return status;
    for (const octavo_scale *s : {c.out_scale_inv, c.out_t_scale_inv}) {
      if (s != nullptr) *static_cast<float *>(s->data) = 1.0f / scale;
    }
    clear_padding(c.out, c.in->rows, c.in->cols);
    clear_padding(c.out_t, c.in->cols, c.in->rows);
  }
  shared.publish(c.amax, c.nonfinite);
  return OCTAVO_OK;
}

}  // namespace

octavo_status quantize(const Context &context, const octavo_quantize &c) {
  if (is_state_scaled(c)) return quantize_state(context, c);
  if (is_fp4_scaled(c)) return quantize_fp4(context, c, {});
  if (has_row_scales(c)) return quantize_rows(context, c);
  if (is_block_scaled(c)) return quantize_blocks(context, c);
  return quantize_tensor(context, c);
}

}  // namespace octavo
