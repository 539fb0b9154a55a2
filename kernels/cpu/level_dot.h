/* kernels/cpu/level_dot.h: the loops of dot_loops.h; included by level.cpp only. */
#pragma once

#include "kernels/cpu/dot_loops.h"
#include "kernels/cpu/level_rows.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

#include "kernels/cpu/level_dot_panel.h"
#endif

namespace octavo {
namespace {

/* The register tile of the bf16 dot product.
 *
 * 12 rows by 32 columns are 24 registers of sums; each pair of K costs two loads of b, twelve
 * broadcasts of a and 24 dot products, one a clock. */

#ifdef __AVX512BF16__
/* Adds the products of one pair of K to the sums of a tile. */
struct ExactProducts {
  __attribute__((always_inline)) ExactProducts(__m512i left, __m512i right)
      : left_(reinterpret_cast<__m512bh>(left)), right_(reinterpret_cast<__m512bh>(right)) {}

  __attribute__((always_inline)) void add(uint32_t a, __m512 (&sums)[2]) const {
    const auto pair = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a)));
    sums[0] = _mm512_dpbf16_ps(sums[0], pair, left_);
    sums[1] = _mm512_dpbf16_ps(sums[1], pair, right_);
  }

 private:
  __m512bh left_;
  __m512bh right_;
};

/* The same in fp32, for any values: the product of the odd places first, each rounded. */
struct OrderedProducts {
  __attribute__((always_inline)) OrderedProducts(__m512i left, __m512i right)
      : odd_{odd(left), odd(right)}, even_{even(left), even(right)} {}

  __attribute__((always_inline)) void add(uint32_t a, __m512 (&sums)[2]) const {
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(a));
    for (int half = 0; half < 2; ++half) {
      sums[half] = _mm512_add_ps(sums[half], _mm512_mul_ps(odd(pair), odd_[half]));
      sums[half] = _mm512_add_ps(sums[half], _mm512_mul_ps(even(pair), even_[half]));
    }
  }

 private:
  static __m512 odd(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
  }
  static __m512 even(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }

  __m512 odd_[2];
  __m512 even_[2];
};

template <int kRows, typename Products>
__attribute__((always_inline)) inline void add_dot_products(const uint32_t *a, int64_t stride,
                                                            const uint32_t *b, int64_t pairs,
                                                            __m512 (&sums)[kRows][2]) {
  /* Every third row has a pointer of its own, which keeps all of them in registers. */
  const uint32_t *rows[(kRows + 2) / 3];
  for (int i = 0; i < (kRows + 2) / 3; ++i) rows[i] = a + 3 * i * stride;
  for (int64_t pair = 0; pair < pairs; ++pair, b += kDotCols) {
    const Products products(_mm512_loadu_si512(b), _mm512_loadu_si512(b + 16));
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      products.add(rows[row / 3][row % 3 * stride + pair], sums[row]);
    }
  }
}

template <int kRows>
__attribute__((always_inline)) inline void load_sums(const float *from, __m512 (&sums)[kRows][2]) {
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    sums[row][0] = _mm512_loadu_ps(from + row * kDotCols);
    sums[row][1] = _mm512_loadu_ps(from + row * kDotCols + 16);
  }
}

template <int kRows>
__attribute__((always_inline)) inline void clear_sums(__m512 (&sums)[kRows][2]) {
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) sums[row][0] = sums[row][1] = _mm512_setzero_ps();
}

template <int kRows>
__attribute__((always_inline)) inline void store_sums(const __m512 (&sums)[kRows][2], float *out) {
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    _mm512_storeu_ps(out + row * kDotCols, sums[row][0]);
    _mm512_storeu_ps(out + row * kDotCols + 16, sums[row][1]);
  }
}

template <int kRows, typename Products>
void dot_tile(const uint32_t *a, int64_t stride, const uint32_t *b, int64_t pairs, bool continues,
              float *out) {
  __m512 sums[kRows][2];
  if (continues) {
    load_sums<kRows>(out, sums);
  } else {
    clear_sums<kRows>(sums);
  }
  add_dot_products<kRows, Products>(a, stride, b, pairs, sums);
  store_sums<kRows>(sums, out);
}

/* out += fl32(parts * fl32(a_scale * b_scale)), and parts = 0. */
template <int kRows>
__attribute__((always_inline)) inline void drain_block(__m512 (&parts)[kRows][2],
                                                       const float *a_scales, const float *b_scales,
                                                       float *out) {
  const __m512 scales[2] = {_mm512_loadu_ps(b_scales), _mm512_loadu_ps(b_scales + 16)};
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    const __m512 a_scale = _mm512_set1_ps(a_scales[row]);
    for (int half = 0; half < 2; ++half) {
      float *sum = out + row * kDotCols + half * 16;
      const __m512 part = _mm512_mul_ps(parts[row][half], _mm512_mul_ps(a_scale, scales[half]));
      _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), part));
      parts[row][half] = _mm512_setzero_ps();
    }
  }
}

template <int kRows>
void dot_block_tile(const uint32_t *a, int64_t stride, const uint32_t *b, int64_t pairs,
                    int64_t length, const float *a_scales, const float *b_scales, bool continues,
                    float *out) {
  __m512 parts[kRows][2];
  clear_sums<kRows>(parts);
  if (!continues) store_sums<kRows>(parts, out);
  for (int64_t done = 0; done < pairs; done += length) {
    const int64_t count = pairs - done < length ? pairs - done : length;
    add_dot_products<kRows, ExactProducts>(a + done, stride, b, count, parts);
    drain_block<kRows>(parts, a_scales, b_scales, out);
    b += count * kDotCols;
    a_scales += kRows;
    b_scales += kDotCols;
  }
}

template <int kRows>
constexpr void fill_dot_tiles(DotLoops *loops) {
  loops->exact[kRows - 1] = &dot_tile<kRows, ExactProducts>;
  loops->ordered[kRows - 1] = &dot_tile<kRows, OrderedProducts>;
  loops->block[kRows - 1] = &dot_block_tile<kRows>;
  if constexpr (kRows > 1) fill_dot_tiles<kRows - 1>(loops);
}
#endif

/* From the sums of a tile to the output.
 *
 * The conversions are those of kernels/format/float16.h, in integers: the conversion
 * instructions treat subnormals as 0 or keep other bits of a NaN. */

#ifdef __AVX512BF16__
/* in -> out of a plain dtype, one row of a tile. */
template <uint32_t kDtype>
struct PlainRow;

template <>
struct PlainRow<OCTAVO_F32> {
  using Type = float;
  static float encode(float value) { return value; }
  static float decode(float value) { return value; }
};

template <>
struct PlainRow<OCTAVO_BF16> {
  using Type = uint16_t;
  static uint16_t encode(float value) { return encode_bf16(value); }
  static float decode(uint16_t value) { return decode_bf16(value); }
};

template <>
struct PlainRow<OCTAVO_F16> {
  using Type = uint16_t;
  static uint16_t encode(float value) { return encode_f16(value); }
  static float decode(uint16_t value) { return decode_f16(value); }
};

/* One row of `cols` sums; inlined with a constant cols, so that it is vector code. */
template <uint32_t kDtype>
__attribute__((always_inline)) inline void finish_row(const float *sums, int cols, int row,
                                                      const DotFinish &f) {
  using Row = PlainRow<kDtype>;
  using Type = typename Row::Type;
  auto *out = reinterpret_cast<Type *>(f.out + row * f.stride);
  float values[kDotCols];
  for (int i = 0; i < cols; ++i) values[i] = sums[row * kDotCols + i];
  if (f.row_scales != nullptr) {
    const float row_scale = f.row_scales[row];
    for (int i = 0; i < cols; ++i) values[i] *= row_scale * f.col_scales[i];
  }
  if (f.bias != nullptr && f.bias_after) {
    for (int i = 0; i < cols; ++i) {
      const float sum = Row::decode(Row::encode(values[i])) + f.bias[i];
      values[i] = Row::decode(Row::encode(sum));
    }
  } else if (f.bias != nullptr) {
    for (int i = 0; i < cols; ++i) values[i] += f.bias[i];
  }
  if (f.accumulates) {
    for (int i = 0; i < cols; ++i) values[i] = Row::decode(out[i]) + values[i];
  }
  for (int i = 0; i < cols; ++i) out[i] = Row::encode(values[i]);
}

template <uint32_t kDtype>
void finish_rows(const float *sums, int rows, int cols, const DotFinish &f) {
  for (int row = 0; row < rows; ++row) {
    if (cols == kDotCols) {
      finish_row<kDtype>(sums, kDotCols, row, f);
    } else {
      finish_row<kDtype>(sums, cols, row, f);
    }
  }
}

void finish_dot_tile(const float *sums, int rows, int cols, const DotFinish &f) {
  switch (f.dtype) {
    case OCTAVO_F32: return finish_rows<OCTAVO_F32>(sums, rows, cols, f);
    case OCTAVO_BF16: return finish_rows<OCTAVO_BF16>(sums, rows, cols, f);
    default: return finish_rows<OCTAVO_F16>(sums, rows, cols, f);
  }
}
#endif

/* Bf16 operands whose rows run along M or N instead of K.
 *
 * Two such rows interleaved are pairs of K already. A panel of b wants them just so, rows of a
 * want 16 by 16 of them transposed. */

#ifdef __AVX512BF16__
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
#endif

/* Few rows of a against b.
 *
 * With few rows the time goes into reading and transposing b, so its pairs are multiplied as
 * they leave the transposition, and the panel is never stored. Codes in panel order leave
 * memory so. */

#ifdef __AVX512BF16__
/* sums[kRows][kDotCols] over the pairs that source(body) calls its body with. */
template <int kRows, typename Source>
__attribute__((always_inline)) inline DotRange sum_thin(const uint32_t *a, float *out,
                                                        Source &&source) {
  __m512 sums[kRows][2];
  clear_sums<kRows>(sums);
  const DotRange range = source([&](int64_t, __m512i left, __m512i right) {
    const ExactProducts products(left, right);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      products.add(a[row], sums[row]);
    }
    a += kRows;
  });
  store_sums<kRows>(sums, out);
  return range;
}

/* The same with scales for blocks of `length` pairs. */
template <int kRows, typename Source>
__attribute__((always_inline)) inline void sum_thin_blocks(const uint32_t *a, int64_t length,
                                                           const float *a_scales,
                                                           const float *b_scales, float *out,
                                                           Source &&source) {
  __m512 parts[kRows][2];
  clear_sums<kRows>(parts);
  store_sums<kRows>(parts, out);
  int64_t left = length; /* pairs of the block */
  source([&](int64_t, __m512i one, __m512i other) {
    const ExactProducts products(one, other);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) products.add(a[row], parts[row]);
    a += kRows;
    if (--left > 0) return;
    drain_block<kRows>(parts, a_scales, b_scales, out);
    a_scales += kRows;
    b_scales += kDotCols;
    left = length;
  });
  if (left < length) drain_block<kRows>(parts, a_scales, b_scales, out);
}

template <int kRows>
DotRange thin_tile(const uint32_t *a, uint32_t dtype, const void *b, int64_t stride, int cols,
                   int64_t n, float *out) {
  return sum_thin<kRows>(
      a, out, [=](auto &&body) __attribute__((always_inline)) {
        return for_pairs_of(dtype, b, stride, cols, n, body);
      });
}

template <int kRows>
DotRange packed_tile(const uint32_t *a, uint32_t dtype, const void *panel, int64_t n, float *out) {
  return sum_thin<kRows>(
      a, out, [=](auto &&body) __attribute__((always_inline)) {
        return for_packed_pairs(dtype, panel, n, body);
      });
}

template <int kRows>
void thin_block_tile(const uint32_t *a, uint32_t dtype, const void *b, int64_t stride, int cols,
                     int64_t n, int64_t length, const float *a_scales, const float *b_scales,
                     float *out) {
  sum_thin_blocks<kRows>(
      a, length, a_scales, b_scales, out, [=](auto &&body) __attribute__((always_inline)) {
        for_pairs<CodePairs>(dtype, b, stride, cols, n, body);
      });
}

template <int kRows>
void packed_block_tile(const uint32_t *a, uint32_t dtype, const void *panel, int64_t n,
                       int64_t length, const float *a_scales, const float *b_scales, float *out) {
  sum_thin_blocks<kRows>(
      a, length, a_scales, b_scales, out, [=](auto &&body) __attribute__((always_inline)) {
        for_packed_pairs(dtype, panel, n, body);
      });
}

template <int kRows>
constexpr void fill_thin_tiles(DotLoops *loops) {
  loops->thin[kRows - 1] = &thin_tile<kRows>;
  loops->thin_block[kRows - 1] = &thin_block_tile<kRows>;
  loops->packed[kRows - 1] = &packed_tile<kRows>;
  loops->packed_block[kRows - 1] = &packed_block_tile<kRows>;
  if constexpr (kRows > 1) fill_thin_tiles<kRows - 1>(loops);
}
#endif

/* The loops of dot_loops.h. */

#ifdef __AVX512BF16__

/* 1 + 2^-24 + 2^-24, from the odd element on: rounded after each product it stays 1, in one sum it
 * becomes 1 + 2^-23. With the even element first, 2^-24 + 2^-24 + 1 would become that, too. */
bool is_chain() {
  const __m512i tiny_then_one = _mm512_set1_epi32(0x33803F80); /* odd 2^-24, even 1 */
  const __m512i tiny_then_tiny = _mm512_set1_epi32(0x33803380);
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F803F80));
  const __m512 rounded_twice =
      _mm512_dpbf16_ps(_mm512_set1_ps(1.0f), reinterpret_cast<__m512bh>(tiny_then_tiny), ones);
  const __m512 odd_first =
      _mm512_dpbf16_ps(_mm512_set1_ps(0x1p-24f), reinterpret_cast<__m512bh>(tiny_then_one), ones);
  return _mm512_cmpneq_ps_mask(rounded_twice, _mm512_set1_ps(1.0f)) == 0 &&
         _mm512_cmpneq_ps_mask(odd_first, _mm512_set1_ps(1.0f + 0x1p-23f)) == 0;
}

constexpr DotLoops make_dot_loops() {
  DotLoops loops = {};
  loops.is_chain = &is_chain;
  loops.pack_row = &pack_dot_row;
  loops.pack_panel = &pack_dot_panel;
  loops.pack_k_major_panel = &pack_k_major_dot_panel;
  loops.pack_k_major_rows = &pack_k_major_dot_rows;
  loops.pack_codes = &pack_code_panel;
  loops.decode_codes = &decode_code_panel;
  loops.measure = &measure_pairs;
  loops.finish = &finish_dot_tile;
  fill_dot_tiles<kDotRows>(&loops);
  fill_thin_tiles<kThinRows>(&loops);
  return loops;
}

constexpr DotLoops kDotLoops = make_dot_loops();
constexpr const DotLoops *kDot = &kDotLoops;

#else

constexpr const DotLoops *kDot = nullptr;

#endif

}  // namespace
}  // namespace octavo
