/* kernels/cpu/block_scales.h: scales that are a matrix of their own, of blocks and of rows;
 * kernels/check/granularity.h says how.
 */
#pragma once

#include "kernels/cpu/rows.h"
#include "kernels/format/e8m0.h"
#include "kernels/format/float8.h"

namespace octavo {

static_assert(kSegment % kLongBlock == 0 && kSegment % kMxBlock == 0,
              "a segment must end where a block ends");

/* The multiplier of block `block` of a row of scales; see scale_row. */
inline float scale_inv_at(const octavo_scale &s, const char *scales, int64_t block) {
  if (s.dtype == OCTAVO_E4M3FN)
    return decode_e4m3(reinterpret_cast<const uint8_t *>(scales)[block]);
  if (s.dtype == OCTAVO_E8M0FNU)
    return decode_e8m0(reinterpret_cast<const uint8_t *>(scales)[block]);
  return reinterpret_cast<const float *>(scales)[block];
}

/* fl32(code * scale_inv) of `count` elements from (row, col) on; col is a multiple of 128. */
void load_block_values(const Context &context, const octavo_tensor &codes, const octavo_scale &s,
                       int64_t row, int64_t col, int64_t count, float *values);

/* The verbs of kernels.h for checked calls whose scales have such a granularity. */
octavo_status quantize_blocks(const Context &context, const octavo_quantize &c);
octavo_status dequantize_blocks(const Context &context, const octavo_dequantize &c);

/* OCTAVO_PER_ROW: the scales of a tensor [rows, cols] are a matrix [rows, 1]; scale.stride is 1
 * where they are side by side, and may be larger. */
/* The multiplier of a row; s has one for each. */
inline float &row_scale_inv(const octavo_scale &s, int64_t row) {
  return static_cast<float *>(s.data)[row * s.stride];
}

/* quantize of a checked call: each row of out, and of out_t, has the scale of its own amax. */
octavo_status quantize_rows(const Context &context, const octavo_quantize &c);

}  // namespace octavo
