// A good byte transpose: 16 x 64 tiles read as 16-byte pieces of four rows at once, unpacked in
// four stages, written as whole cache lines.
//
// Row r of the tile's 64 rows lies in lane (r / 16) of the vectors, so that after the stages every
// vector is one output row of 64 bytes.
#include <immintrin.h>

#include "tests/bench/avx512.h"

namespace octavo::bench {
namespace {

// 16 bytes of rows r, r + 16, r + 32 and r + 48.
inline __m512i four_rows(const uint8_t *in, int64_t cols) {
  const auto piece = [&](int64_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(in + row * cols));
  };
  __m512i v = _mm512_castsi128_si512(piece(0));
  v = _mm512_inserti32x4(v, piece(16), 1);
  v = _mm512_inserti32x4(v, piece(32), 2);
  return _mm512_inserti32x4(v, piece(48), 3);
}

// out[0..16)[64] = in[64][16]
inline void transpose_tile(const uint8_t *in, int64_t cols, uint8_t *out, int64_t rows) {
  __m512i a[16];
  __m512i b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = four_rows(in + i * cols, cols);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    b[2 * i] = _mm512_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_epi8(a[2 * i], a[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    for (int half = 0; half < 2; ++half) {
      a[4 * i + 2 * half] = _mm512_unpacklo_epi16(b[4 * i + half], b[4 * i + 2 + half]);
      a[4 * i + 2 * half + 1] = _mm512_unpackhi_epi16(b[4 * i + half], b[4 * i + 2 + half]);
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    for (int part = 0; part < 4; ++part) {
      b[8 * i + 2 * part] = _mm512_unpacklo_epi32(a[8 * i + part], a[8 * i + 4 + part]);
      b[8 * i + 2 * part + 1] = _mm512_unpackhi_epi32(a[8 * i + part], a[8 * i + 4 + part]);
    }
  }
#pragma GCC unroll 8
  for (int part = 0; part < 8; ++part) {
    uint8_t *row = out + 2 * part * rows;
    _mm512_storeu_si512(row, _mm512_unpacklo_epi64(b[part], b[8 + part]));
    _mm512_storeu_si512(row + rows, _mm512_unpackhi_epi64(b[part], b[8 + part]));
  }
}

}  // namespace

void transpose_bytes(const uint8_t *in, int64_t rows, int64_t cols, uint8_t *out) {
  for (int64_t row = 0; row < rows; row += 64) {
    for (int64_t col = 0; col < cols; col += 16) {
      transpose_tile(in + row * cols + col, cols, out + col * rows + row, rows);
    }
  }
}

}  // namespace octavo::bench
