/* kernels/cpu/level_dot_tile.h: the register tile of the bf16 dot product; included by level.cpp
 * only.
 *
 * 12 rows by 32 columns are 24 registers of sums; each pair of K costs two loads of b, twelve
 * broadcasts of a and 24 dot products, one a clock.
 */
#pragma once

#include <immintrin.h>

#include "kernels/cpu/dot_loops.h"

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo
