/* kernels/cpu/level_dot_panel.h: panels of b as pairs for the dot product; included by level.cpp
 * only.
 *
 * A panel is a transposition of pairs: 16-bit pairs of codes are transposed before they are
 * decoded, which moves half the bytes, and rows are laid into the lanes such that the interleaving
 * of the decoder leaves the columns in order.
 */
#pragma once

#include "kernels/cpu/level_dot_rows.h"

namespace octavo {
namespace {

/* 32 rows of 64 bytes, each from its own place in the first cache: rows of b are a power of two
 * apart more often than not, and would drive each other out of it. */
struct alignas(64) Stage {
  uint8_t rows[kDotCols][64];
};

/* 16 bytes of one row into each lane. */
__attribute__((always_inline)) inline __m512i gather_lanes(const Stage &stage, int byte, int row0,
                                                           int row1, int row2, int row3) {
  const auto load = [&](int row) {
    return _mm_load_si128(reinterpret_cast<const __m128i *>(stage.rows[row] + byte));
  };
  __m512i all = _mm512_broadcast_i32x4(load(row0));
  all = _mm512_mask_broadcast_i32x4(all, 0x00F0, load(row1));
  all = _mm512_mask_broadcast_i32x4(all, 0x0F00, load(row2));
  return _mm512_mask_broadcast_i32x4(all, 0xF000, load(row3));
}

/* Eight pairs of codes of 32 rows, transposed in each lane: one vector for each pair. */
__attribute__((always_inline)) inline void transpose_codes(const Stage &stage, int byte,
                                                           __m512i (&out)[8]) {
  __m512i in[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    /* Lane j: columns 4j to 4j + 3, then 16 + 4j to 16 + 4j + 3. */
    const int row = i < 4 ? i : 12 + i;
    in[i] = gather_lanes(stage, byte, row, row + 4, row + 8, row + 12);
  }
  __m512i two[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    two[2 * i] = _mm512_unpacklo_epi16(in[2 * i], in[2 * i + 1]);
    two[2 * i + 1] = _mm512_unpackhi_epi16(in[2 * i], in[2 * i + 1]);
  }
  __m512i four[8];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    four[4 * i] = _mm512_unpacklo_epi32(two[4 * i], two[4 * i + 2]);
    four[4 * i + 1] = _mm512_unpackhi_epi32(two[4 * i], two[4 * i + 2]);
    four[4 * i + 2] = _mm512_unpacklo_epi32(two[4 * i + 1], two[4 * i + 3]);
    four[4 * i + 3] = _mm512_unpackhi_epi32(two[4 * i + 1], two[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = _mm512_unpacklo_epi64(four[i], four[4 + i]);
    out[2 * i + 1] = _mm512_unpackhi_epi64(four[i], four[4 + i]);
  }
}

/* Four pairs of bf16 of 16 rows from `row` on, transposed in each lane: one vector for each pair.
 */
__attribute__((always_inline)) inline void transpose_pairs(const Stage &stage, int byte, int row,
                                                           __m512i (&out)[4]) {
  __m512i in[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    in[i] = gather_lanes(stage, byte, row + i, row + i + 4, row + i + 8, row + i + 12);
  }
  const __m512i a = _mm512_unpacklo_epi32(in[0], in[1]);
  const __m512i b = _mm512_unpackhi_epi32(in[0], in[1]);
  const __m512i c = _mm512_unpacklo_epi32(in[2], in[3]);
  const __m512i d = _mm512_unpackhi_epi32(in[2], in[3]);
  out[0] = _mm512_unpacklo_epi64(a, c);
  out[1] = _mm512_unpackhi_epi64(a, c);
  out[2] = _mm512_unpacklo_epi64(b, d);
  out[3] = _mm512_unpackhi_epi64(b, d);
}

/* Fetches the 32 rows after a panel's into the second cache, some lines in each step, row
 * by row as memory likes it. */
class NextPanel {
 public:
  NextPanel(const void *in, int64_t stride, int64_t bytes)
      : next_(static_cast<const char *>(in) + kDotCols * stride),
        stride_(stride),
        lines_((bytes + 63) / 64) {}

  /* Eight lines: a quarter of what 64 bytes of each row of a panel are. */
  __attribute__((always_inline)) void fetch_some() {
    for (int i = 0; i < kDotCols / 4; ++i) {
      _mm_prefetch(next_ + 64 * line_, _MM_HINT_T1);
      if (++line_ == lines_) {
        line_ = 0;
        next_ += stride_;
      }
    }
  }

 private:
  const char *next_;
  int64_t stride_;
  int64_t lines_;
  int64_t line_ = 0;
};

/* FP8 codes on their way to bf16. */
class CodePairs {
 public:
  static constexpr int kPairs = 8; /* that come out of one transposition */

  explicit CodePairs(uint32_t dtype) : dtype_(dtype), decoder_(dtype) {}

  /* Before they are staged: the smaller k of a pair in its odd place. */
  __attribute__((always_inline)) __m512i swap(__m512i codes) {
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    return _mm512_shuffle_epi8(codes, order);
  }
  __attribute__((always_inline)) void transpose(const Stage &stage, int byte,
                                                __m512i (&left)[kPairs], __m512i (&right)[kPairs]) {
    __m512i codes[kPairs];
    transpose_codes(stage, byte, codes);
#pragma GCC unroll 8
    for (int i = 0; i < kPairs; ++i) decoder_.decode(codes[i], &left[i], &right[i]);
  }
  DotRange range() const {
    return range_of_codes(dtype_);
  }

 private:
  uint32_t dtype_;
  Decoder decoder_;
};

/* bf16 as it is, measured. */
class PlainPairs {
 public:
  static constexpr int kPairs = 4;

  explicit PlainPairs(uint32_t) {}

  __attribute__((always_inline)) __m512i swap(__m512i values) {
    const __m512i pairs = _mm512_rol_epi32(values, 16);
    range_.add(pairs);
    return pairs;
  }
  __attribute__((always_inline)) void transpose(const Stage &stage, int byte,
                                                __m512i (&left)[kPairs], __m512i (&right)[kPairs]) {
    transpose_pairs(stage, byte, 0, left);
    transpose_pairs(stage, byte, 16, right);
  }
  DotRange range() const { return range_.get(); }

 private:
  RangeOfPairs range_;
};

/* Calls body(pair, left, right) for each pair of K in order, with the bf16 pairs of columns 0 to 15
 * and 16 to 31 of `cols` rows of `bytes` bytes. While 64 bytes of each row are multiplied or
 * stored, the next 64 come to the other stage, since each row is a cache line of its own that takes
 * its time. */
template <typename Pairs, typename Body>
__attribute__((always_inline)) inline DotRange for_pairs(uint32_t dtype, const void *in,
                                                         int64_t stride, int cols, int64_t bytes,
                                                         Body &&body) {
  constexpr int kPairs = Pairs::kPairs;
  Pairs source(dtype);
  NextPanel next_panel(in, stride, bytes);
  Stage stages[2] = {};
  const auto bring = [&](int64_t at, int first, int end, Stage *stage) {
    const __mmask64 mask = first_bytes(bytes - at);
    const uint8_t *from = static_cast<const uint8_t *>(in) + at;
    for (int row = first; row < end && row < cols; ++row) {
      _mm512_store_si512(stage->rows[row],
                         source.swap(_mm512_maskz_loadu_epi8(mask, from + row * stride)));
    }
  };
  bring(0, 0, cols, &stages[0]);
  constexpr int kParts = 4; /* of 64 bytes: 16 bytes of each row are one transposition */
  int64_t pair = 0;
  const int64_t pairs = (bytes + 16 / kPairs - 1) / (16 / kPairs);
  for (int64_t at = 0; at < bytes; at += 64) {
    const Stage &stage = stages[at / 64 % 2];
    for (int part = 0; part < kParts && pair < pairs; ++part) {
      if (at + 64 < bytes) bring(at + 64, 8 * part, 8 * part + 8, &stages[(at / 64 + 1) % 2]);
      next_panel.fetch_some();
      __m512i left[kPairs];
      __m512i right[kPairs];
      source.transpose(stage, 16 * part, left, right);
#pragma GCC unroll 8
      for (int i = 0; i < kPairs; ++i) {
        if (pair == pairs) break;
        body(pair++, left[i], right[i]);
      }
    }
  }
  return source.range();
}

template <typename Body>
__attribute__((always_inline)) inline DotRange for_pairs_of(uint32_t dtype, const void *in,
                                                            int64_t stride, int cols, int64_t n,
                                                            Body &&body) {
  if (dtype == OCTAVO_BF16) return for_pairs<PlainPairs>(dtype, in, stride, cols, 2 * n, body);
  return for_pairs<CodePairs>(dtype, in, stride, cols, n, body);
}

DotRange pack_dot_panel(uint32_t dtype, const void *in, int64_t stride, int cols, int64_t n,
                        uint32_t *panel) {
  return for_pairs_of(dtype, in, stride, cols, n, [=](int64_t pair, __m512i left, __m512i right) {
    _mm512_storeu_si512(panel + pair * kDotCols, left);
    _mm512_storeu_si512(panel + pair * kDotCols + 16, right);
  });
}

}  // namespace
}  // namespace octavo
