/* kernels/cpu/level_cast_vectors.h: kCastStep elements to E4M3 or E5M2 codes in vector registers;
 * included by level.cpp only.
 *
 * The encoding is one floating point addition. For a magnitude y of exponent e, already clamped to
 * the format's range, the addend has the exponent e + 23 - mantissa bits of the format (that of the
 * smallest normal number where y is subnormal in the format), so that one unit of the sum is one
 * unit of the format: the addition itself rounds to nearest even, once. The low bits of the addend
 * are the code of 2^e less the integer that y contributes, so the low byte of the sum is the code,
 * also where rounding carries into the next exponent. AVX-512 takes the addend from a table of
 * exponents, AVX2 and NEON compute it.
 *
 * Signs are joined at the end, from the bytes that hold them in the input. NaN is not handled: it
 * shows as a magnitude above infinity in what a step has seen, and the caller repeats those
 * elements with the plain loop.
 */
#pragma once

#include "kernels/cpu/level_rows.h"

#ifdef OCTAVO_NEON
#define OCTAVO_CAST_VECTORS 1
#include "kernels/cpu/level_cast_neon.h"
#elif defined(__AVX512BW__) || defined(__AVX2__)
#define OCTAVO_CAST_VECTORS 1
#include <immintrin.h>

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo

#endif

#ifdef OCTAVO_CAST_VECTORS
namespace octavo {
namespace {

constexpr int kCastStep = 4 * kCastLanes; /* elements that become one vector of codes */

}  // namespace
}  // namespace octavo
#endif
