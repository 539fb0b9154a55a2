/* kernels/cpu/level_cast_vectors.h: vectors of elements on the way to codes of 8 bits; included by
 * level.cpp only. */
#pragma once

#include "kernels/cpu/level_rows.h"

#ifdef OCTAVO_NEON
#define OCTAVO_CAST_VECTORS 1
#include <arm_neon.h>
#elif defined(__AVX512BW__) || defined(__AVX2__)
#define OCTAVO_CAST_VECTORS 1
#include <immintrin.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

/* The vectors on NEON.
 *
 * Four patterns of fp32 to a vector. Halves widen in order, since a vector is all of 128 bits. */

#ifdef OCTAVO_NEON
using Bits = uint32x4_t; /* 4 fp32 patterns, 8 halves or 16 bytes */
using FourLanes = uint32x4_t;
constexpr int kCastLanes = 4;
constexpr bool kHasStreams = false; /* no intrinsic writes past the caches */

inline uint8x16_t as_bytes(Bits a) {
  return vreinterpretq_u8_u32(a);
}
inline uint16x8_t as_halves(Bits a) {
  return vreinterpretq_u16_u32(a);
}
inline float32x4_t as_floats(Bits a) {
  return vreinterpretq_f32_u32(a);
}
inline Bits bits_of(uint8x16_t a) {
  return vreinterpretq_u32_u8(a);
}
inline Bits bits_of(uint16x8_t a) {
  return vreinterpretq_u32_u16(a);
}
inline Bits bits_of(float32x4_t a) {
  return vreinterpretq_u32_f32(a);
}

inline Bits all_of(int32_t value) {
  return vdupq_n_u32(static_cast<uint32_t>(value));
}
inline Bits all_of(float value) {
  return bits_of(vdupq_n_f32(value));
}
inline Bits load_bits(const void *from) {
  return bits_of(vld1q_u8(static_cast<const uint8_t *>(from)));
}
inline void store_bits(void *to, Bits value) {
  vst1q_u8(static_cast<uint8_t *>(to), as_bytes(value));
}
inline void stream_bits(void *to, Bits value) {
  store_bits(to, value);
}
inline void end_streams() {}
inline Bits and_bits(Bits a, Bits b) {
  return vandq_u32(a, b);
}
inline Bits without_signs(Bits a) {
  return bits_of(vabsq_f32(as_floats(a)));
}
inline Bits shift_left_16(Bits a) {
  return vshlq_n_u32(a, 16);
}
inline Bits larger(Bits a, Bits b) {
  return vmaxq_u32(a, b);
}
inline Bits larger_halves(Bits a, Bits b) {
  return bits_of(vmaxq_u16(as_halves(a), as_halves(b)));
}
inline Bits smaller(Bits a, Bits b) {
  return vminq_u32(a, b);
}
inline Bits product(Bits a, Bits b) {
  return bits_of(vmulq_f32(as_floats(a), as_floats(b)));
}
inline Bits sum(Bits a, Bits b) {
  return bits_of(vaddq_f32(as_floats(a), as_floats(b)));
}
inline Bits plus(Bits a, Bits b) {
  return vaddq_u32(a, b);
}
template <int kShift>
inline Bits plus_shifted(Bits a) {
  return vsraq_n_u32(a, a, kShift);
}
inline Bits low_halves(Bits a) {
  return vshll_n_u16(vget_low_u16(as_halves(a)), 16);
}
inline Bits high_halves(Bits a) {
  return vshll_high_n_u16(as_halves(a), 16);
}
inline FourLanes four_maxima(Bits a, Bits b, Bits c, Bits d) {
  return vpmaxq_u32(vpmaxq_u32(a, b), vpmaxq_u32(c, d));
}
inline void store_four(int32_t *to, FourLanes four) {
  vst1q_s32(to, vreinterpretq_s32_u32(four));
}
inline int32_t largest_lane(Bits a) {
  return static_cast<int32_t>(vmaxvq_u32(a));
}
inline int32_t largest_of_four(FourLanes four) {
  return largest_lane(four);
}
inline Bits widen_bf16(const void *from) {
  return vshll_n_u16(vld1_u16(static_cast<const uint16_t *>(from)), 16);
}
inline Bits widen_f16(const void *from) {
  const uint16x4_t halves = vld1_u16(static_cast<const uint16_t *>(from));
  return bits_of(vcvt_f32_f16(vreinterpret_f16_u16(halves)));
}
/* Byte 0 (kTop: 3) of each lane of four vectors, in order. */
template <bool kTop>
inline uint8x16_t bytes_of_four(const Bits *v) {
  const auto halves = [v](int i) {
    return kTop ? vuzp2q_u16(as_halves(v[i]), as_halves(v[i + 1]))
                : vuzp1q_u16(as_halves(v[i]), as_halves(v[i + 1]));
  };
  const uint8x16_t first = vreinterpretq_u8_u16(halves(0));
  const uint8x16_t second = vreinterpretq_u8_u16(halves(2));
  return kTop ? vuzp2q_u8(first, second) : vuzp1q_u8(first, second);
}
/* The highest bit of each byte of `top`, the others of `rest`. */
inline uint8x16_t with_top_bits(uint8x16_t top, uint8x16_t rest) {
  return vbslq_u8(vdupq_n_u8(0x80), top, rest);
}
#endif

/* kCastStep elements to E4M3 or E5M2 codes in vector registers.
 *
 * The encoding is one floating point addition. For a magnitude y of exponent e, already clamped
 * to the format's range, the addend has the exponent e + 23 - mantissa bits of the format (that
 * of the smallest normal number where y is subnormal in the format), so that one unit of the
 * sum is one unit of the format: the addition itself rounds to nearest even, once. The low bits
 * of the addend are the code of 2^e less the integer that y contributes, so the low byte of the
 * sum is the code, also where rounding carries into the next exponent. AVX-512 takes the addend
 * from a table of exponents, AVX2 and NEON compute it.
 *
 * Signs are joined at the end, from the bytes that hold them in the input. NaN is not handled:
 * it shows as a magnitude above infinity in what a step has seen, and the caller repeats those
 * elements with the plain loop. */

#if defined(OCTAVO_CAST_VECTORS) && !defined(OCTAVO_NEON)
/* The same instructions for two widths of registers. */
#ifdef __AVX512BW__
using Bits = __m512i; /* 16 fp32 patterns, 32 halves or 64 bytes */
constexpr int kCastLanes = 16;
#define OCTAVO_WIDE(op) _mm512_##op
#define OCTAVO_WIDE_BITS(op) _mm512_##op##_si512
#define OCTAVO_WIDE_FLOATS(bits) _mm512_castsi512_ps(bits)
#else
using Bits = __m256i; /* 8 fp32 patterns, 16 halves or 32 bytes */
constexpr int kCastLanes = 8;
#define OCTAVO_WIDE(op) _mm256_##op
#define OCTAVO_WIDE_BITS(op) _mm256_##op##_si256
#define OCTAVO_WIDE_FLOATS(bits) _mm256_castsi256_ps(bits)
#endif

using FourLanes = __m128i;
constexpr bool kHasStreams = true;

inline Bits all_of(int32_t value) {
  return OCTAVO_WIDE(set1_epi32)(value);
}
inline Bits all_of(float value) {
  return OCTAVO_WIDE_BITS(castps)(OCTAVO_WIDE(set1_ps)(value));
}
inline Bits load_bits(const void *from) {
  return OCTAVO_WIDE_BITS(loadu)(static_cast<const Bits *>(from));
}
inline void store_bits(void *to, Bits value) {
  OCTAVO_WIDE_BITS(storeu)(static_cast<Bits *>(to), value);
}
inline void stream_bits(void *to, Bits value) {
  OCTAVO_WIDE_BITS(stream)(static_cast<Bits *>(to), value);
}
inline void end_streams() {
  _mm_sfence();
}
inline Bits and_bits(Bits a, Bits b) {
  return OCTAVO_WIDE_BITS(and)(a, b);
}
inline Bits without_signs(Bits a) { /* of fp32 */
  return and_bits(a, all_of(kMagnitudeMask));
}
inline Bits shift_left_16(Bits a) {
  return OCTAVO_WIDE(slli_epi32)(a, 16);
}
inline Bits larger(Bits a, Bits b) {
  return OCTAVO_WIDE(max_epu32)(a, b);
}
inline Bits larger_halves(Bits a, Bits b) {
  return OCTAVO_WIDE(max_epu16)(a, b);
}
inline Bits smaller(Bits a, Bits b) {
  return OCTAVO_WIDE(min_epu32)(a, b);
}
inline Bits product(Bits a, Bits b) {
  return OCTAVO_WIDE_BITS(castps)(
      OCTAVO_WIDE(mul_ps)(OCTAVO_WIDE_FLOATS(a), OCTAVO_WIDE_FLOATS(b)));
}
inline Bits sum(Bits a, Bits b) {
  return OCTAVO_WIDE_BITS(castps)(
      OCTAVO_WIDE(add_ps)(OCTAVO_WIDE_FLOATS(a), OCTAVO_WIDE_FLOATS(b)));
}
inline Bits plus(Bits a, Bits b) {
  return OCTAVO_WIDE(add_epi32)(a, b);
}
/* a + (a >> kShift) */
template <int kShift>
inline Bits plus_shifted(Bits a) {
  return plus(a, OCTAVO_WIDE(srli_epi32)(a, kShift));
}
inline Bits low_halves(Bits a) { /* of each 128 bits, after zeros: bf16 as fp32 */
  return OCTAVO_WIDE(unpacklo_epi16)(OCTAVO_WIDE_BITS(setzero)(), a);
}
inline Bits high_halves(Bits a) {
  return OCTAVO_WIDE(unpackhi_epi16)(OCTAVO_WIDE_BITS(setzero)(), a);
}
/* Four vectors to one: lane maxima of a, b, c and d, which are in order in the first 128 bits. */
inline FourLanes four_maxima(Bits a, Bits b, Bits c, Bits d) {
  const Bits ab = larger(OCTAVO_WIDE(unpacklo_epi32)(a, b), OCTAVO_WIDE(unpackhi_epi32)(a, b));
  const Bits cd = larger(OCTAVO_WIDE(unpacklo_epi32)(c, d), OCTAVO_WIDE(unpackhi_epi32)(c, d));
  const Bits all = larger(OCTAVO_WIDE(unpacklo_epi64)(ab, cd), OCTAVO_WIDE(unpackhi_epi64)(ab, cd));
#ifdef __AVX512BW__
  const __m256i half =
      _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
#else
  const __m256i half = all;
#endif
  return _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
#ifdef __AVX512BW__
inline Bits widen_bf16(const void *from) {
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i *>(from));
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}
inline Bits widen_f16(const void *from) {
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i *>(from));
  return _mm512_castps_si512(_mm512_cvtph_ps(halves));
}
inline void store_f16(void *to, Bits values) {
  const __m256i halves = _mm512_cvtps_ph(_mm512_castsi512_ps(values), _MM_FROUND_TO_NEAREST_INT);
  _mm256_storeu_si256(static_cast<__m256i *>(to), halves);
}
#else
inline Bits widen_bf16(const void *from) {
  const __m128i halves = _mm_loadu_si128(static_cast<const __m128i *>(from));
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}
inline Bits widen_f16(const void *from) {
  const __m128i halves = _mm_loadu_si128(static_cast<const __m128i *>(from));
  return _mm256_castps_si256(_mm256_cvtph_ps(halves));
}
inline void store_f16(void *to, Bits values) {
  const __m128i halves = _mm256_cvtps_ph(_mm256_castsi256_ps(values), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(static_cast<__m128i *>(to), halves);
}
#endif
/* fp32 values to the range of f16. NaN stays: these instructions return their second operand. */
inline Bits limited_to_f16(Bits values) {
  const auto below = OCTAVO_WIDE(min_ps)(OCTAVO_WIDE(set1_ps)(kMaxF16), OCTAVO_WIDE_FLOATS(values));
  return OCTAVO_WIDE_BITS(castps)(OCTAVO_WIDE(max_ps)(OCTAVO_WIDE(set1_ps)(-kMaxF16), below));
}
#undef OCTAVO_WIDE
#undef OCTAVO_WIDE_BITS
#undef OCTAVO_WIDE_FLOATS

inline void store_four(int32_t *to, FourLanes four) {
  _mm_storeu_si128(reinterpret_cast<__m128i *>(to), four);
}
/* The largest of all fp32 patterns. */
inline int32_t largest_lane(Bits a) {
  return _mm_cvtsi128_si32(four_maxima(a, a, a, a));
}
inline int32_t largest_of_four(FourLanes four) { /* as signed numbers */
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

#endif

#ifdef OCTAVO_CAST_VECTORS

constexpr int kCastStep = 4 * kCastLanes; /* elements that become one vector of codes */

#endif

/* Transposing bytes.
 *
 * 16 vectors hold 16 columns of a block: their 128-bit part p holds the rows 16 * p and
 * following. Four rounds of interleaving halves turn every 16 x 16 part over, after which
 * vector c is column c of all rows, in order. */

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
