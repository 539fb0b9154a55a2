/* kernels/cpu/level_transpose.h: transposing bytes; included by level.cpp only.
 *
 * 16 vectors hold 16 columns of a block: their 128-bit part p holds the rows 16 * p and following.
 * Four rounds of interleaving halves turn every 16 x 16 part over, after which vector c is column c
 * of all rows, in order.
 */
#pragma once

#include "kernels/cpu/level_cast_vectors.h"

#ifdef OCTAVO_NEON
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

inline void transpose_rest(const uint8_t *in, int64_t in_stride, int64_t rows, int64_t cols,
                           uint8_t *out, int64_t out_stride) {
  for (int64_t col = 0; col < cols; ++col) {
    for (int64_t row = 0; row < rows; ++row)
      out[col * out_stride + row] = in[row * in_stride + col];
  }
}

#if defined(__SSE2__) || defined(OCTAVO_NEON)

#ifdef OCTAVO_NEON
using Columns = uint8x16_t;
inline Columns interleave_low(Columns a, Columns b) {
  return vzip1q_u8(a, b);
}
inline Columns interleave_high(Columns a, Columns b) {
  return vzip2q_u8(a, b);
}
inline Columns load_part_rows(const uint8_t *in, int64_t) {
  return vld1q_u8(in);
}
inline void store_column(uint8_t *out, Columns column, bool) {
  vst1q_u8(out, column);
}
#elif defined(__AVX512BW__)
using Columns = __m512i;
inline Columns interleave_low(Columns a, Columns b) {
  return _mm512_unpacklo_epi8(a, b);
}
inline Columns interleave_high(Columns a, Columns b) {
  return _mm512_unpackhi_epi8(a, b);
}
/* 16 bytes of every 16th row. */
inline Columns load_part_rows(const uint8_t *in, int64_t stride) {
  const auto part = [&](int64_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(in + row * stride));
  };
  Columns rows = _mm512_castsi128_si512(part(0));
  rows = _mm512_inserti32x4(rows, part(16), 1);
  rows = _mm512_inserti32x4(rows, part(32), 2);
  return _mm512_inserti32x4(rows, part(48), 3);
}
inline void store_column(uint8_t *out, Columns column, bool streams) {
  if (streams) {
    _mm512_stream_si512(reinterpret_cast<__m512i *>(out), column);
  } else {
    _mm512_storeu_si512(out, column);
  }
}
#else
using Columns = __m128i;
inline Columns interleave_low(Columns a, Columns b) {
  return _mm_unpacklo_epi8(a, b);
}
inline Columns interleave_high(Columns a, Columns b) {
  return _mm_unpackhi_epi8(a, b);
}
inline Columns load_part_rows(const uint8_t *in, int64_t) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i *>(in));
}
inline void store_column(uint8_t *out, Columns column, bool streams) {
  if (streams) {
    _mm_stream_si128(reinterpret_cast<__m128i *>(out), column);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(out), column);
  }
}
#endif

constexpr int64_t kColumnRows = sizeof(Columns);

/* kColumnRows rows of 16 columns. */
inline void transpose_columns(const uint8_t *in, int64_t in_stride, uint8_t *out,
                              int64_t out_stride, bool streams) {
  Columns v[16];
  for (int row = 0; row < 16; ++row) v[row] = load_part_rows(in + row * in_stride, in_stride);
  /* One round takes row i and i + 8 together; after four, i is the column. */
  for (int round = 0; round < 4; ++round) {
    Columns next[16];
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = interleave_low(v[i], v[i + 8]);
      next[2 * i + 1] = interleave_high(v[i], v[i + 8]);
    }
    for (int i = 0; i < 16; ++i) v[i] = next[i];
  }
  for (int col = 0; col < 16; ++col) store_column(out + col * out_stride, v[col], streams);
}

void transpose_bytes(const uint8_t *in, int64_t in_stride, int64_t rows, int64_t cols, uint8_t *out,
                     int64_t out_stride, bool streams) {
  const int64_t whole_rows = rows / kColumnRows * kColumnRows;
  const int64_t whole_cols = cols / 16 * 16;
  const bool is_aligned = reinterpret_cast<uintptr_t>(out) % kColumnRows == 0 &&
                          static_cast<uint64_t>(out_stride) % kColumnRows == 0;
  for (int64_t col = 0; col < whole_cols; col += 16) {
    for (int64_t row = 0; row < whole_rows; row += kColumnRows) {
      transpose_columns(in + row * in_stride + col, in_stride, out + col * out_stride + row,
                        out_stride, streams && is_aligned);
    }
  }
  if (whole_rows < rows) {
    transpose_rest(in + whole_rows * in_stride, in_stride, rows - whole_rows, whole_cols,
                   out + whole_rows, out_stride);
  }
  transpose_rest(in + whole_cols, in_stride, rows, cols - whole_cols, out + whole_cols * out_stride,
                 out_stride);
#ifdef __SSE2__
  if (streams) _mm_sfence();
#endif
}

#else

void transpose_bytes(const uint8_t *in, int64_t in_stride, int64_t rows, int64_t cols, uint8_t *out,
                     int64_t out_stride, bool) {
  transpose_rest(in, in_stride, rows, cols, out, out_stride);
}

#endif

}  // namespace
}  // namespace octavo
