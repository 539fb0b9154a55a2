/* kernels/cpu/level_dot_thin.h: few rows of a against b; included by level.cpp only.
 *
 * With few rows the time goes into reading and transposing b, so its pairs are multiplied as they
 * leave the transposition, and the panel is never stored. Codes in panel order leave memory so.
 */
#pragma once

#include "kernels/cpu/level_dot_packed.h"
#include "kernels/cpu/level_dot_tile.h"

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo
