/* kernels/cpu/level_dot_panel.h: operands of the bf16 dot product as pairs; included by level.cpp
 * only. */
#pragma once

#include <immintrin.h>

#include "kernels/cpu/dot_loops.h"
#include "octavo/tensor.h"

namespace octavo {
namespace {

/* Codes and bf16 as pairs for the dot product, row by row.
 *
 * A code becomes bf16 by two look-ups of its seven magnitude bits, one for each byte of the
 * result, and its sign bit on top. */

/* The bytes of bf16 for each magnitude of an FP8 format. */
struct alignas(64) ByteTables {
  uint8_t high[128];
  uint8_t low[128];
};

template <int kMantissaBits, int kBias, int32_t kSpecial>
constexpr ByteTables make_byte_tables() {
  ByteTables t = {};
  for (int32_t code = 0; code < 128; ++code) {
    uint32_t bits = 0;
    if (code >= kSpecial) {
      bits = kMantissaBits == 2 && code == kSpecial ? 0x7F80 : 0x7FC0; /* E5M2: infinity, NaN */
    } else if (code >= 1 << kMantissaBits) {
      bits = static_cast<uint32_t>((code << (7 - kMantissaBits)) + ((127 - kBias) << 7));
    } else if (code > 0) { /* subnormal: shift until the top bit is the implicit one */
      uint32_t mantissa = static_cast<uint32_t>(code) << (7 - kMantissaBits);
      uint32_t exponent = 128 - kBias;
      for (; mantissa < 128; mantissa *= 2) --exponent;
      bits = (exponent << 7) + (mantissa - 128);
    }
    t.high[code] = static_cast<uint8_t>(bits >> 8);
    t.low[code] = static_cast<uint8_t>(bits & 0xFF);
  }
  return t;
}

constexpr ByteTables kE4m3Bytes = make_byte_tables<3, 7, 0x7F>();
constexpr ByteTables kE5m2Bytes = make_byte_tables<2, 15, 0x7C>();

/* Decodes 64 codes to the high and the low bytes of bf16. */
class Decoder {
 public:
  explicit Decoder(uint32_t dtype) {
    const ByteTables &t = dtype == OCTAVO_E4M3FN ? kE4m3Bytes : kE5m2Bytes;
    for (int half = 0; half < 2; ++half) {
      high_[half] = _mm512_load_si512(t.high + 64 * half);
      low_[half] = _mm512_load_si512(t.low + 64 * half);
    }
  }

  /* first: bf16 of bytes 0 to 7 of each lane; second: of bytes 8 to 15. */
  __attribute__((always_inline)) void decode(__m512i codes, __m512i *first, __m512i *second) const {
    const __m512i magnitude = _mm512_permutex2var_epi8(high_[0], codes, high_[1]);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], codes, low_[1]);
    /* magnitude | (codes & 0x80) */
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xF8);
    *first = _mm512_unpacklo_epi8(low, high);
    *second = _mm512_unpackhi_epi8(low, high);
  }

 private:
  __m512i high_[2];
  __m512i low_[2];
};

inline __mmask64 first_bytes(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

inline __mmask16 first_pairs(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << (count < 0 ? 0 : count)) - 1);
}

/* Collects the range of pairs of bf16. */
class RangeOfPairs {
 public:
  __attribute__((always_inline)) void add(__m512i pairs) {
    const __m512i magnitude = _mm512_and_si512(pairs, _mm512_set1_epi16(0x7FFF));
    greatest_ = _mm512_max_epu16(greatest_, magnitude);
    /* 0 wraps to the greatest number, so it never counts as the least. */
    least_ = _mm512_min_epu16(least_, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
  }

  DotRange get() const {
    alignas(64) uint16_t least[32];
    alignas(64) uint16_t greatest[32];
    _mm512_store_si512(least, least_);
    _mm512_store_si512(greatest, greatest_);
    DotRange all;
    for (int i = 0; i < 32; ++i) {
      merge(&all, {static_cast<uint16_t>(least[i] == 0xFFFF ? 0xFFFF : least[i] + 1), greatest[i]});
    }
    return all;
  }

 private:
  __m512i least_ = _mm512_set1_epi16(-1);
  __m512i greatest_ = _mm512_setzero_si512();
};

inline DotRange range_of_codes(uint32_t dtype) {
  if (dtype == OCTAVO_E4M3FN) return {0x3B00, 0x43E0}; /* 2^-9, 448 */
  return {0x3780, 0x4760};                             /* 2^-16, 57344 */
}

DotRange measure_pairs(const uint32_t *pairs, int64_t count) {
  RangeOfPairs range;
  for (int64_t i = 0; i < count; i += 16) {
    range.add(_mm512_maskz_loadu_epi32(first_pairs(count - i), pairs + i));
  }
  return range.get();
}

/* The order in which 64 codes must be, so that the decoder's two results are the pairs of codes 0
 * to 31 and 32 to 63, each with the smaller k in its odd place. */
struct alignas(64) RowOrder {
  uint8_t at[64];
};

constexpr RowOrder make_row_order() {
  RowOrder order = {};
  for (int lane = 0; lane < 4; ++lane) {
    for (int i = 0; i < 8; ++i) {
      order.at[lane * 16 + i] = static_cast<uint8_t>(lane * 8 + (i ^ 1));
      order.at[lane * 16 + 8 + i] = static_cast<uint8_t>(32 + lane * 8 + (i ^ 1));
    }
  }
  return order;
}

constexpr RowOrder kRowOrder = make_row_order();

DotRange pack_code_row(uint32_t dtype, const uint8_t *in, int64_t n, uint32_t *out) {
  const Decoder decoder(dtype);
  const __m512i order = _mm512_load_si512(kRowOrder.at);
  for (int64_t i = 0; i < n; i += 64, out += 32) {
    const int64_t pairs = (n - i + 1) / 2;
    const __m512i codes = _mm512_maskz_loadu_epi8(first_bytes(n - i), in + i);
    __m512i first;
    __m512i second;
    decoder.decode(_mm512_permutexvar_epi8(order, codes), &first, &second);
    _mm512_mask_storeu_epi32(out, first_pairs(pairs), first);
    _mm512_mask_storeu_epi32(out + 16, first_pairs(pairs - 16), second);
  }
  return range_of_codes(dtype);
}

DotRange pack_dot_row(uint32_t dtype, const void *in, int64_t n, uint32_t *out) {
  if (dtype != OCTAVO_BF16) return pack_code_row(dtype, static_cast<const uint8_t *>(in), n, out);
  const auto *values = static_cast<const uint16_t *>(in);
  RangeOfPairs range;
  for (int64_t i = 0; i < n; i += 32, out += 16) {
    const auto mask = static_cast<__mmask32>(first_bytes(n - i));
    const __m512i pairs = _mm512_rol_epi32(_mm512_maskz_loadu_epi16(mask, values + i), 16);
    range.add(pairs);
    _mm512_mask_storeu_epi32(out, first_pairs((n - i + 1) / 2), pairs);
  }
  return range.get();
}

/* Panels of b as pairs for the dot product.
 *
 * A panel is a transposition of pairs: 16-bit pairs of codes are transposed before they are
 * decoded, which moves half the bytes, and rows are laid into the lanes such that the
 * interleaving of the decoder leaves the columns in order. */

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

/* Codes in panel order, see dot_loops.h.
 *
 * The order is that in which transposed codes enter the decoder, so that reading them needs no
 * transposition and runs through memory from front to back. */

/* FP8 codes as they are: both vectors of a pair have those of all columns. */
class PlainCodes : public CodePairs {
 public:
  using CodePairs::CodePairs;

  __attribute__((always_inline)) void transpose(const Stage &stage, int byte,
                                                __m512i (&left)[kPairs], __m512i (&right)[kPairs]) {
    transpose_codes(stage, byte, left);
    for (int i = 0; i < kPairs; ++i) right[i] = left[i];
  }
};

void pack_code_panel(const void *in, int64_t stride, int cols, int64_t n, void *panel) {
  auto *out = static_cast<uint8_t *>(panel);
  for_pairs<PlainCodes>(OCTAVO_E4M3FN, in, stride, cols, n, [&](int64_t pair, __m512i codes, auto) {
    if (2 * pair + 1 < n) {
      _mm512_storeu_si512(out + pair * 64, codes);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + pair * 64),
                          _mm512_cvtepi16_epi8(_mm512_srli_epi16(codes, 8)));
    }
  });
}

/* for_pairs of codes in panel order. */
template <typename Body>
__attribute__((always_inline)) inline DotRange for_packed_pairs(uint32_t dtype, const void *panel,
                                                                int64_t n, Body &&body) {
  const Decoder decoder(dtype);
  const auto *in = static_cast<const uint8_t *>(panel);
  __m512i left;
  __m512i right;
  for (int64_t pair = 0; pair < n / 2; ++pair) {
    decoder.decode(_mm512_loadu_si512(in + pair * 64), &left, &right);
    body(pair, left, right);
  }
  if (n % 2 != 0) {
    const __m256i last = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(in + n / 2 * 64));
    decoder.decode(_mm512_slli_epi16(_mm512_cvtepu8_epi16(last), 8), &left, &right);
    body(n / 2, left, right);
  }
  return range_of_codes(dtype);
}

DotRange decode_code_panel(uint32_t dtype, const void *codes, int64_t n, uint32_t *panel) {
  return for_packed_pairs(dtype, codes, n, [=](int64_t pair, __m512i left, __m512i right) {
    _mm512_storeu_si512(panel + pair * kDotCols, left);
    _mm512_storeu_si512(panel + pair * kDotCols + 16, right);
  });
}

}  // namespace
}  // namespace octavo
