/* kernels/cpu/block_scales.h: the scales of block granularities, which lie in a matrix of their
 * own; kernels/check/granularity.h says how.
 */
#ifndef OCTAVO_KERNELS_CPU_BLOCK_SCALES_H
#define OCTAVO_KERNELS_CPU_BLOCK_SCALES_H

#include "kernels/cpu/rows.h"
#include "kernels/format/e8m0.h"

namespace octavo {

static_assert(kSegment % kLongBlock == 0 && kSegment % kMxBlock == 0,
              "a segment must end where a block ends");

/* The multiplier of block `block` of a row of scales; see scale_row. */
inline float scale_inv_at(const octavo_scale &s, const char *scales, int64_t block) {
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

}  // namespace octavo

#endif
