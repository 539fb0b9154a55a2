/* kernels/cpu/level_tile.h: the register tile of the GEMM; included by level.cpp only.
 *
 * Every output element is one chain of fp32 additions over k ascending, whatever the tile size, so
 * all levels, tilings and thread counts give the bits of the plain triple loop.
 */
#pragma once

#include "kernels/cpu/level.h"

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(OCTAVO_NEON)
#include <arm_neon.h>
#endif

namespace octavo {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kTileRows = 12; /* 24 of 32 registers hold sums */
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kTileRows = 6; /* 12 of 16 registers hold sums */
#elif defined(OCTAVO_NEON)
constexpr int kLanes = 4;
constexpr int kTileRows = 12; /* 24 of 32 registers hold sums */
#else
constexpr int kLanes = 4;
constexpr int kTileRows = 6;
#endif
constexpr int kTileCols = 2 * kLanes;
static_assert(kTileRows <= kMaxTileRows && kTileCols <= kMaxTileCols);

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
/* The same in memory, where only the alignment of a float is known. */
typedef float VectorInMemory
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

/* sum + factor * values, fused where the level can. */
inline void add_exact_product(Vector &sum, float factor, const Vector &values) {
#if defined(__AVX512F__)
  sum = _mm512_fmadd_ps(_mm512_set1_ps(factor), values, sum);
#elif defined(__AVX2__) && defined(__FMA__)
  sum = _mm256_fmadd_ps(_mm256_set1_ps(factor), values, sum);
#elif defined(OCTAVO_NEON)
  sum = vfmaq_n_f32(sum, values, factor);
#else
  sum += factor * values;
#endif
}

/* The rows' factors of one step. */
#ifdef OCTAVO_NEON
/* Four are one load, since an instruction multiplies by a lane of a vector. */
template <int kRows>
struct Factors {
  static constexpr int kWhole = kRows / kLanes * kLanes;
  const float *rest;
  Vector vectors[kRows / kLanes + 1];

  explicit Factors(const float *a) : rest(a) {
#pragma GCC unroll 3
    for (int row = 0; row < kWhole; row += kLanes) {
      vectors[row / kLanes] = *reinterpret_cast<const VectorInMemory *>(a + row);
    }
  }
  float operator[](int row) const {
    return row < kWhole ? vectors[row / kLanes][row % kLanes] : rest[row];
  }
};
#else
template <int>
using Factors = const float *;
#endif

/* sums += the products of k steps. Inlined, so that sums stay in registers. */
template <int kRows, bool kExact>
__attribute__((always_inline)) inline void add_products(const float *a, const float *b, int64_t k,
                                                        Vector (&sums)[kRows][2]) {
  for (int64_t step = 0; step < k; ++step, a += kRows, b += kTileCols) {
    const Vector left = *reinterpret_cast<const VectorInMemory *>(b);
    const Vector right = *reinterpret_cast<const VectorInMemory *>(b + kLanes);
    const Factors<kRows> factors(a);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      if constexpr (kExact) {
        add_exact_product(sums[row][0], factors[row], left);
        add_exact_product(sums[row][1], factors[row], right);
      } else {
        sums[row][0] += factors[row] * left;
        sums[row][1] += factors[row] * right;
      }
    }
  }
}

template <int kRows, bool kExact>
void multiply_tile(const float *a, const float *b, int64_t k, float *out) {
  Vector sums[kRows][2] = {};
  add_products<kRows, kExact>(a, b, k, sums);
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    *reinterpret_cast<VectorInMemory *>(out + row * kTileCols) = sums[row][0];
    *reinterpret_cast<VectorInMemory *>(out + row * kTileCols + kLanes) = sums[row][1];
  }
}

template <int kRows>
void multiply_block_tile(const float *a, const float *b, int64_t k, int64_t length,
                         const float *a_scales, const float *b_scales, float *sums) {
  for (int64_t rest = k; rest > 0; rest -= length, a_scales += kRows, b_scales += kTileCols) {
    const int64_t steps = rest < length ? rest : length;
    Vector parts[kRows][2] = {};
    add_products<kRows, true>(a, b, steps, parts);
    a += steps * kRows;
    b += steps * kTileCols;
    const Vector left = *reinterpret_cast<const VectorInMemory *>(b_scales);
    const Vector right = *reinterpret_cast<const VectorInMemory *>(b_scales + kLanes);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      auto *to = reinterpret_cast<VectorInMemory *>(sums + row * kTileCols);
      to[0] += parts[row][0] * (a_scales[row] * left);
      to[1] += parts[row][1] * (a_scales[row] * right);
    }
  }
}

/* Fills tiles[0 .. kRows) with the functions of 1 to kRows rows. */
template <int kRows, bool kExact>
constexpr void fill_tiles(GemmTile *tiles) {
  tiles[kRows - 1] = &multiply_tile<kRows, kExact>;
  if constexpr (kRows > 1) fill_tiles<kRows - 1, kExact>(tiles);
}

template <int kRows>
constexpr void fill_block_tiles(GemmBlockTile *tiles) {
  tiles[kRows - 1] = &multiply_block_tile<kRows>;
  if constexpr (kRows > 1) fill_block_tiles<kRows - 1>(tiles);
}

}  // namespace
}  // namespace octavo
