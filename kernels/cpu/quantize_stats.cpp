/* quantize_stats: how well codes represent the values that they were made of.
 *
 * Counts are integers and squares are fp64, each part's added in the order of its elements. How a
 * tensor is cut into parts depends on the shape alone, so neither the number of threads nor the
 * level shows in a result.
 */
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

/* The largest magnitude that is not saturated. A scale made of this very tensor's amax is rounded
 * up to four times by 2^-24 on its way to scale_inv and back; without the allowance of 2^-20 the
 * element that is amax would count in every other cast. */
float limit_of(float scale_inv, float largest) {
  const double exact = static_cast<double>(scale_inv) * static_cast<double>(largest);
  const double allowed = exact * (1.0 + 0x1p-20);
  return allowed < static_cast<double>(kFloatMax) ? static_cast<float>(allowed) : kFloatMax;
}

void count_segment(const Context &context, const octavo_quantize_stats &c, int64_t row, int64_t col,
                   int64_t count, CastStats *stats) {
  float value_buffer[kSegment];
  float codes[kSegment];
  const float *values = row_values(context, *c.in, row, col, count, 1.0f, value_buffer);
  context.level->load(c.codes->dtype, element(*c.codes, row, col), count, codes);
  const octavo_scale &s = *c.scale_inv;
  const auto count_elements = [&](int64_t start, int64_t length, float scale_inv) {
    const float limit = limit_of(scale_inv, largest_of(c.codes->dtype));
    context.level->stats.count(values + start, codes + start, length, scale_inv, limit, stats);
  };
  if (is_row_scaled(&s)) return count_elements(0, count, row_scale_inv(s, row));
  if (!is_block_granularity(s.granularity)) return count_elements(0, count, scale_value(&s));
  const char *scales = scale_row(s, row);
  const int64_t length = block_cols(s.granularity);
  for (int64_t start = 0; start < count; start += length) {
    const int64_t rest = count - start;
    count_elements(start, rest < length ? rest : length,
                   scale_inv_at(s, scales, (col + start) / length));
  }
}

}  // namespace

octavo_status quantize_stats(const Context &context, const octavo_quantize_stats &c) {
  constexpr int64_t kParts = 64;
  const int64_t cols = c.in->cols;
  const int64_t segments = c.in->rows * divide_up(cols, kSegment);
  const int64_t per_part = divide_up(segments, kParts);
  CastStats parts[kParts];
  octavo_status status = context.for_ranges(kParts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * per_part < segments ? part * per_part : segments;
      const int64_t last = first + per_part < segments ? first + per_part : segments;
      CastStats stats;
      for_segments(cols, first, last, [&](int64_t row, int64_t col, int64_t count) {
        count_segment(context, c, row, col, count, &stats);
      });
      parts[part] = stats;
    }
  });
  if (status != OCTAVO_OK) return status;
  CastStats total;
  for (const CastStats &part : parts) {
    total.saturated += part.saturated;
    total.underflow += part.underflow;
    total.signal += part.signal;
    total.noise += part.noise;
  }
  if (c.saturated != nullptr) accumulate_sum(c.saturated, static_cast<float>(total.saturated));
  if (c.underflow != nullptr) accumulate_sum(c.underflow, static_cast<float>(total.underflow));
  if (c.signal != nullptr) accumulate_sum(c.signal, static_cast<float>(total.signal));
  if (c.noise != nullptr) accumulate_sum(c.noise, static_cast<float>(total.noise));
  return OCTAVO_OK;
}

}  // namespace octavo
