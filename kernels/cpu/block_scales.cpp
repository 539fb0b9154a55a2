/* Reading codes with scales of block granularities.
 *
 * The numbers are those of kernels/format/scale_rules.h and e8m0.h.
 */
#include "kernels/cpu/block_scales.h"

#include "kernels/cpu/fp4.h"
#include "kernels/cpu/verbs.h"

namespace octavo {

void load_block_values(const Context &context, const octavo_tensor &codes, const octavo_scale &s,
                       int64_t row, int64_t col, int64_t count, float *values) {
  load_any(context, codes, row, col, count, values);
  const int64_t length = block_cols(s.granularity);
  const char *scales = scale_row(s, row);
  for (int64_t start = 0; start < count; start += length) {
    const int64_t rest = count - start;
    float factor = scale_inv_at(s, scales, (col + start) / length);
    if (s.second != nullptr) factor = nvfp4_decode_factor(factor, *s.second);
    context.level->multiply(values + start, rest < length ? rest : length, factor);
  }
}

octavo_status dequantize_blocks(const Context &context, const octavo_dequantize &c) {
  const int64_t cols = c.in->cols;
  return for_segment_ranges(context, c.in->rows, cols, [&](int64_t begin, int64_t end) {
    for_segments(cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      float values[kSegment];
      load_block_values(context, *c.in, *c.scale_inv, row, col, count, values);
      store_plain(context, *c.out, row, col, count, c.accumulate != 0, values);
    });
  });
}

}  // namespace octavo
