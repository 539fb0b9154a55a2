/* kernels/cpu/level_dot_k_major.h: bf16 operands whose rows run along M or N instead of K; included
 * by level.cpp only.
 *
 * Two such rows interleaved are pairs of K already. A panel of b wants them just so, rows of a want
 * 16 by 16 of them transposed.
 */
#pragma once

#include "kernels/cpu/level_dot_rows.h"

namespace octavo {
namespace {

DotRange pack_k_major_dot_panel(const void *in, int64_t stride, int cols, int64_t n,
                                uint32_t *panel) {
  const auto mask = static_cast<__mmask32>(first_bytes(cols));
  /* Columns 0 to 15 of both rows, then 16 to 31, from what unpacking leaves in the lanes. */
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  RangeOfPairs range;
  for (int64_t k = 0; k < n; k += 2, panel += kDotCols) {
    const char *row = static_cast<const char *>(in) + k * stride;
    const __m512i odd = _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi16(mask, row));
    const __m512i even =
        k + 1 == n ? _mm512_setzero_si512()
                   : _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi16(mask, row + stride));
    range.add(odd);
    range.add(even);
    _mm512_storeu_si512(panel, _mm512_unpacklo_epi16(even, odd));
    _mm512_storeu_si512(panel + 16, _mm512_unpackhi_epi16(even, odd));
  }
  return range.get();
}

/* 16 rows of 16 dwords become 16 columns: four stages, each of which exchanges one bit of the row
 * number with one of the column number. */
__attribute__((always_inline)) inline void transpose_dwords(__m512i (&rows)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  /* rows[4g + j], lane l: column 4l + j of source rows 4g to 4g + 3. */
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low02 = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0x88);
    const __m512i low13 = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0xDD);
    const __m512i high02 = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0x88);
    const __m512i high13 = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0xDD);
    t[j] = _mm512_shuffle_i32x4(low02, high02, 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(low13, high13, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(low02, high02, 0xDD);
    t[12 + j] = _mm512_shuffle_i32x4(low13, high13, 0xDD);
  }
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

/* `count` (at most 16) columns of n rows of bf16 as rows of pairs, `out_stride` apart. */
void pack_k_major_dot_rows(const void *in, int64_t stride, int count, int64_t n, uint32_t *out,
                           int64_t out_stride) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  const auto load = [&](int64_t k) {
    if (k >= n) return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(mask, static_cast<const char *>(in) + k * stride));
  };
  for (int64_t k = 0; k < n; k += 32) {
    __m512i pairs[16];
    for (int i = 0; i < 16; ++i) {
      pairs[i] = _mm512_or_si512(_mm512_slli_epi32(load(k + 2 * i), 16), load(k + 2 * i + 1));
    }
    transpose_dwords(pairs);
    const __mmask16 part = first_pairs((n - k + 1) / 2);
    for (int i = 0; i < count; ++i) {
      _mm512_mask_storeu_epi32(out + i * out_stride + k / 2, part, pairs[i]);
    }
  }
}

}  // namespace
}  // namespace octavo
