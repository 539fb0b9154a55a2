/* kernels/cpu/block_scales.h: the scales of block granularities, which lie in a matrix of their
 * own.
 *
 * The scales of a tensor [rows, cols] with blocks of R x C are a matrix [ceil(rows / R),
 * ceil(cols / C)]: f32 for blocks of 128, E8M0 for blocks of 32. C is 128 or 32 in all of them, and
 * R is 1 or C.
 */
#ifndef OCTAVO_KERNELS_CPU_BLOCK_SCALES_H
#define OCTAVO_KERNELS_CPU_BLOCK_SCALES_H

#include "kernels/cpu/rows.h"
#include "kernels/format/e8m0.h"

namespace octavo {

constexpr int64_t kLongBlock = 128; /* f32 scales */
constexpr int64_t kMxBlock = 32;    /* E8M0 scales */
static_assert(kSegment % kLongBlock == 0 && kSegment % kMxBlock == 0,
              "a segment must end where a block ends");

inline bool is_block_granularity(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X128 || granularity == OCTAVO_BLOCK_128X128 ||
         granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32;
}

inline bool has_blocks(const octavo_scale *s) {
  return s != nullptr && is_block_granularity(s->granularity);
}

inline bool is_mx_granularity(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32;
}

inline int64_t block_cols(uint32_t granularity) {
  return is_mx_granularity(granularity) ? kMxBlock : kLongBlock;
}

inline int64_t block_rows(uint32_t granularity) {
  const bool is_row = granularity == OCTAVO_BLOCK_1X128 || granularity == OCTAVO_BLOCK_1X32;
  return is_row ? 1 : block_cols(granularity);
}

/* Where the scales of row `row` of the tensor begin; s has blocks. */
inline char *scale_row(const octavo_scale &s, int64_t row) {
  return static_cast<char *>(s.data) +
         row / block_rows(s.granularity) * s.stride * dtype_bytes(s.dtype);
}

/* The multiplier of block `block` of such a row. */
inline float scale_inv_at(const octavo_scale &s, const char *scales, int64_t block) {
  if (s.dtype == OCTAVO_E8M0FNU)
    return decode_e8m0(reinterpret_cast<const uint8_t *>(scales)[block]);
  return reinterpret_cast<const float *>(scales)[block];
}

/* Refuses a null scale, a dtype that is not that of the granularity, a stride shorter than a row of
 * scales, and a null or misaligned address. s has blocks; t is the checked tensor beside it. */
void check_block_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &t);

/* fl32(code * scale_inv) of `count` elements from (row, col) on; col is a multiple of 128. */
void load_block_values(const Context &context, const octavo_tensor &codes, const octavo_scale &s,
                       int64_t row, int64_t col, int64_t count, float *values);

/* The verbs of kernels.h for calls whose scales have such a granularity. */
octavo_status quantize_blocks(const Context &context, const octavo_quantize &c);
octavo_status dequantize_blocks(const Context &context, const octavo_dequantize &c);

/* Refuses what quantize_blocks cannot do; the text of a failure has gone to the host. */
octavo_status check_quantize_blocks(const Context &context, const octavo_quantize &c);

}  // namespace octavo

#endif
