/* sum_quantized, sum_rows and sum_of_squares.
 *
 * How a sum is cut into parts depends on the shape only and the parts are added in order, so the
 * number of threads never shows. Partial sums of plain values are fp64, rounded once: a column's
 * over its rows in order, a square's by the order of add_squares in update_loops.h.
 */
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/float8.h"

namespace octavo {

octavo_status sum_quantized(const Context &context, const octavo_sum_quantized &c) {
  const int64_t count = static_cast<int64_t>(c.count);
  std::atomic<int64_t> outside = 0;
  octavo_status status = for_segment_ranges(context, 1, count, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kSegment;
    const int64_t length = (end * kSegment < count ? end * kSegment : count) - first;
    const int64_t found = context.level->updates.sum_codes(
        c.dtype, static_cast<const uint8_t *>(c.codes) + first, c.shards, c.shard_stride, length,
        static_cast<uint8_t *>(c.out) + first);
    outside.fetch_add(found, std::memory_order_relaxed);
  });
  if (status != OCTAVO_OK) return status;
  const float count_as = c.count_as == 0.0f ? 1.0f : c.count_as;
  if (c.added != nullptr) accumulate_sum(c.added, static_cast<float>(count) * count_as);
  if (c.saturated != nullptr && outside > 0) {
    accumulate_sum(c.saturated, static_cast<float>(outside.load()) * count_as);
  }
  return OCTAVO_OK;
}

octavo_status sum_rows(const Context &context, const octavo_sum &c) {
  constexpr int64_t kCols = 512; /* columns that one index covers; their sums stay in a cache */
  const float factor = scale_value(c.in_scale_inv);
  const int64_t cols = c.in->cols;
  const int64_t rows = c.in->rows;
  const int64_t grain = divide_up(kGrainElements, (rows + 1) * kCols);
  return context.for_ranges(divide_up(cols, kCols), grain, [&](int64_t begin, int64_t end) {
    for (int64_t col = begin * kCols; col < end * kCols && col < cols; col += kCols) {
      const int64_t count = cols - col < kCols ? cols - col : kCols;
      double sums[kCols] = {};
      for (int64_t row = 0; row < rows; ++row) {
        float buffer[kCols];
        const float *values = row_values(context, *c.in, row, col, count, factor, buffer);
        context.level->updates.add_each(values, count, sums);
      }
      float *out = static_cast<float *>(c.out) + col;
      for (int64_t i = 0; i < count; ++i) {
        const float sum = static_cast<float>(sums[i]);
        out[i] = c.accumulate != 0 ? out[i] + sum : sum;
      }
    }
  });
}

octavo_status sum_of_squares(const Context &context, const octavo_sum &c) {
  constexpr int64_t kParts = 64;
  const float factor = scale_value(c.in_scale_inv);
  const int64_t cols = c.in->cols;
  const int64_t segments = c.in->rows * divide_up(cols, kSegment);
  const int64_t per_part = divide_up(segments, kParts);
  double parts[kParts] = {};
  octavo_status status = context.for_ranges(kParts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * per_part;
      const int64_t last = first + per_part < segments ? first + per_part : segments;
      double sums[kSquareParts] = {};
      for_segments(cols, first, last, [&](int64_t row, int64_t col, int64_t count) {
        float buffer[kSegment];
        const float *values = row_values(context, *c.in, row, col, count, factor, buffer);
        context.level->updates.add_squares(values, count, sums);
      });
      parts[part] = total_of_squares(sums);
    }
  });
  if (status != OCTAVO_OK) return status;
  double total = 0.0;
  for (const double part : parts) total += part;
  accumulate_sum(static_cast<float *>(c.out), static_cast<float>(total));
  return OCTAVO_OK;
}

}  // namespace octavo
