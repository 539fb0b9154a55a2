/* kernels/cpu/dot_loops.h: the inner loops of gemm over pairs of bf16, for levels that have a bf16
 * dot product.
 *
 * FP8 codes are bf16 numbers, so both operands become bf16 without rounding. The instruction adds
 * two products to an fp32 sum, one after the other with a rounding after each, and begins with the
 * odd element of a pair. A pair therefore holds the smaller k in its odd place, and the sum is the
 * chain over ascending k that the contract asks for, bit for bit.
 *
 * The instruction treats subnormals as 0. No product or sum of FP8 codes is subnormal in fp32;
 * operands that were bf16 all along are measured while they are packed, see DotRange.
 */
#pragma once

#include <cstdint>

namespace octavo {

constexpr int kDotRows = 12;
constexpr int kDotCols = 32;
constexpr int kThinRows = 8;
constexpr int kPackedRows = 16;

/* The magnitudes of bf16 values as bits: the least that is not 0, and the greatest. */
struct DotRange {
  uint16_t least = 0xFFFF;
  uint16_t greatest = 0;
};

static inline void merge(DotRange *to, const DotRange &from) {
  to->least = from.least < to->least ? from.least : to->least;
  to->greatest = from.greatest > to->greatest ? from.greatest : to->greatest;
}

/* Whether each product of values of two ranges is exact in fp32, and no sum of them subnormal.
 * Values are multiples of 2^(e - 134) and below 2^(e - 126), with e their biased exponents: so
 * products and their sums are multiples of 2^(ea + eb - 268), which must be 2^-126 at least. */
static inline bool has_exact_products(const DotRange &a, const DotRange &b) {
  if (a.greatest == 0 || b.greatest == 0) {
    return a.greatest < 0x7F80 && b.greatest < 0x7F80; /* all zeros, but 0 * Inf is NaN */
  }
  const int least_a = a.least >> 7;
  const int least_b = b.least >> 7;
  const int greatest_a = a.greatest >> 7;
  const int greatest_b = b.greatest >> 7;
  return least_a > 0 && least_b > 0 && greatest_a < 255 && greatest_b < 255 &&
         least_a + least_b >= 268 - 126 && greatest_a + greatest_b <= 126 + 126 + 127;
}

/* What becomes of the sums of a tile: v = sum; v *= fl32(row_scale * col_scale); bias; accumulate;
 * one rounding. As octavo_gemm says. */
struct DotFinish {
  const float *row_scales; /* [rows], or null: no scale */
  const float *col_scales; /* [kDotCols] */
  const float *bias;       /* [kDotCols], or null */
  char *out;
  int64_t stride; /* bytes */
  uint32_t dtype; /* f32, bf16 or f16 */
  bool bias_after;
  bool accumulates;
};

/* sums[rows][kDotCols] of rows of `a`, `stride` pairs apart, and a panel of b[pairs][kDotCols].
 * `continues`: sums hold what smaller k gave. */
using DotTile = void (*)(const uint32_t *a, int64_t stride, const uint32_t *b, int64_t pairs,
                         bool continues, float *sums);

/* The same with one scale for each row, column and block of `length` pairs: for every block p is
 * such a chain from 0 on, and sums += fl32(p * fl32(a_scale * b_scale)). Scales are f32
 * [blocks][rows] and [blocks][kDotCols]. */
using DotBlockTile = void (*)(const uint32_t *a, int64_t stride, const uint32_t *b, int64_t pairs,
                              int64_t length, const float *a_scales, const float *b_scales,
                              bool continues, float *sums);

/* sums[rows][kDotCols] over all n of K, of a[pair][rows] and `cols` rows of b, `stride` bytes
 * apart, whose range is returned: the sums are right where products are exact. */
using DotThinTile = DotRange (*)(const uint32_t *a, uint32_t dtype, const void *b, int64_t stride,
                                 int cols, int64_t n, float *sums);

/* The same for FP8 codes with scales as DotBlockTile has them. */
using DotThinBlockTile = void (*)(const uint32_t *a, uint32_t dtype, const void *b, int64_t stride,
                                  int cols, int64_t n, int64_t length, const float *a_scales,
                                  const float *b_scales, float *sums);

/* Codes in panel order: panels of kDotCols rows of b, kDotCols * K bytes each. A panel holds the
 * codes of one pair of K after the other, 64 bytes each: one pair for each column in the order that
 * decodes to columns 0 to 15 and 16 to 31, the smaller k in the odd byte. With an odd K the last
 * codes stand alone, 32 bytes in the same order of columns.
 *
 * As DotThinTile and DotThinBlockTile, for all kDotCols columns of one such panel. */
using DotPackedTile = DotRange (*)(const uint32_t *a, uint32_t dtype, const void *panel, int64_t n,
                                   float *sums);
using DotPackedBlockTile = void (*)(const uint32_t *a, uint32_t dtype, const void *panel, int64_t n,
                                    int64_t length, const float *a_scales, const float *b_scales,
                                    float *sums);

struct DotLoops {
  /* Whether this CPU's dot product rounds and orders as described. */
  bool (*is_chain)();
  /* n values of E4M3FN, E5M2 or bf16 as pairs; an odd n is followed by a 0. */
  DotRange (*pack_row)(uint32_t dtype, const void *in, int64_t n, uint32_t *out);
  /* `cols` rows of b, `stride` bytes apart, n values each, as panel[pair][kDotCols]; columns from
   * `cols` on are 0. */
  DotRange (*pack_panel)(uint32_t dtype, const void *in, int64_t stride, int cols, int64_t n,
                         uint32_t *panel);
  /* The same for bf16 that is transposed: n rows of `cols` values. */
  DotRange (*pack_k_major_panel)(const void *in, int64_t stride, int cols, int64_t n,
                                 uint32_t *panel);
  /* The rows of a for transposed bf16: n rows of `count` (at most kPackedRows) values. */
  void (*pack_k_major_rows)(const void *in, int64_t stride, int count, int64_t n, uint32_t *out,
                            int64_t out_stride);
  /* `cols` rows of n codes, `stride` bytes apart, in panel order; rows from `cols` on are 0. */
  void (*pack_codes)(const void *in, int64_t stride, int cols, int64_t n, void *panel);
  /* n codes of each column of a panel in that order, from an even k on: what pack_panel gives. */
  DotRange (*decode_codes)(uint32_t dtype, const void *codes, int64_t n, uint32_t *panel);
  DotRange (*measure)(const uint32_t *pairs, int64_t count);
  /* [rows - 1]. ordered: each product is rounded before it is added, for any values. */
  DotTile exact[kDotRows];
  DotTile ordered[kDotRows];
  DotBlockTile block[kDotRows];
  DotThinTile thin[kThinRows]; /* for so few rows, packing b does not pay */
  DotThinBlockTile thin_block[kThinRows];
  DotPackedTile packed[kThinRows];
  DotPackedBlockTile packed_block[kThinRows];
  void (*finish)(const float *sums, int rows, int cols, const DotFinish &f);
};

}  // namespace octavo
