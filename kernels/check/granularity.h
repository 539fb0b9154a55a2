/* kernels/check/granularity.h: what follows from the descriptors of tensors and scales alone.
 *
 * Nothing here reads what a descriptor points to. The scales of a tensor [rows, cols] with blocks
 * of R x C are a matrix [ceil(rows / R), ceil(cols / C)]: f32 for blocks of 128, E8M0 for blocks
 * of 32. C is 128 or 32 in all of them, and R is 1 or C. Blocks of a state run over a dense matrix
 * in memory order, across rows. Blocks of 16 are those of octavo/draft/fp4.h, for codes of four
 * bits.
 */
#pragma once

#include "kernels/format/bits.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "octavo/draft/fp4.h"
#include "octavo/draft/msamp.h"

namespace octavo {

constexpr int64_t kLongBlock = 128; /* f32 scales */
constexpr int64_t kMxBlock = 32;    /* E8M0 scales */
constexpr int64_t kFp4Block = 16;   /* E4M3 scales */
constexpr int64_t kFlatBlock = 256; /* of states */
constexpr int64_t kExpandedBlock = 128;
constexpr int64_t kExpandedScales = 3; /* floats for each of these */

inline int64_t divide_up(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/* Of one element that has a whole byte or more; of one that has less, 1. */
inline int64_t dtype_bytes(uint32_t dtype) {
  return OCTAVO_DTYPE_BYTES(dtype, 1);
}

/* The largest finite value of any dtype that kernels take. */
inline float largest_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_BF16: return kMaxBf16;
    case OCTAVO_F16: return kMaxF16;
    case OCTAVO_E4M3FN: return kMaxE4m3;
    case OCTAVO_E5M2: return kMaxE5m2;
    default: return kFloatMax;
  }
}

/* What an infinite scale of a block becomes; values of codes are f32. */
inline float largest_scale_of(uint32_t dtype) {
  return OCTAVO_DTYPE_BITS(dtype) == 8 ? kFloatMax : largest_of(dtype);
}

/* In codes of four bits: the byte that holds it. */
inline char *element(const octavo_tensor &t, int64_t row, int64_t col) {
  const int64_t bits = OCTAVO_DTYPE_BITS(t.dtype);
  return static_cast<char *>(t.data) + (row * t.stride + col) * bits / 8;
}

/* No gaps between rows; a single row's stride says nothing. */
inline bool is_dense(const octavo_tensor &t) {
  return t.stride == t.cols || t.rows <= 1;
}

/* A dense matrix as one row. */
inline octavo_tensor as_row(const octavo_tensor &t) {
  const int64_t count = t.rows * t.cols;
  return {t.data, 1, count, count, t.dtype, 0};
}

/* The shape and dtype of t, dense, at another address. */
inline octavo_tensor dense_at(const octavo_tensor &t, void *data) {
  return {data, t.rows, t.cols, t.cols, t.dtype, 0};
}

inline bool is_row_scaled(const octavo_scale *s) {
  return s != nullptr && s->granularity == OCTAVO_PER_ROW;
}

inline bool is_block_granularity(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X128 || granularity == OCTAVO_BLOCK_128X128 ||
         granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32;
}

inline bool has_blocks(const octavo_scale *s) {
  return s != nullptr && is_block_granularity(s->granularity);
}

inline bool is_fp4_granularity(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X16 || granularity == OCTAVO_BLOCK_16X16;
}

inline bool has_fp4_blocks(const octavo_scale *s) {
  return s != nullptr && is_fp4_granularity(s->granularity);
}

inline bool is_mx_granularity(uint32_t granularity) {
  return granularity == OCTAVO_BLOCK_1X32 || granularity == OCTAVO_BLOCK_32X32;
}

inline int64_t block_cols(uint32_t granularity) {
  if (is_fp4_granularity(granularity)) return kFp4Block;
  return is_mx_granularity(granularity) ? kMxBlock : kLongBlock;
}

inline int64_t block_rows(uint32_t granularity) {
  const bool is_row = granularity == OCTAVO_BLOCK_1X128 || granularity == OCTAVO_BLOCK_1X32 ||
                      granularity == OCTAVO_BLOCK_1X16;
  return is_row ? 1 : block_cols(granularity);
}

/* Where the scales of row `row` of the tensor begin; s has blocks. Null where K is 0. */
inline char *scale_row(const octavo_scale &s, int64_t row) {
  if (s.data == nullptr) return nullptr;
  return static_cast<char *>(s.data) +
         row / block_rows(s.granularity) * s.stride * dtype_bytes(s.dtype);
}

inline bool is_state_granularity(uint32_t granularity) {
  return granularity == OCTAVO_FLAT_256 || granularity == OCTAVO_EXPANDED_128;
}

inline bool has_state_blocks(const octavo_scale *s) {
  return s != nullptr && is_state_granularity(s->granularity);
}

}  // namespace octavo
