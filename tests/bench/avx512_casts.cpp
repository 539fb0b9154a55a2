// The casts of PyTorch's AVX-512 path as opponents: classes of values by compares and masks.
//
// Overflow becomes the NaN code there, so callers clamp first, and so does this one. Subnormals are
// rounded by an fp32 addition, normal values by an integer one.
#include <immintrin.h>

#include "tests/bench/avx512.h"

namespace octavo::bench {
namespace {

// The codes of 16 values, each in 32 bits.
inline __m512i encode16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN));
  const __m512i magnitude = _mm512_xor_si512(bits, sign);
  const __mmask16 too_large =
      _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(0x43F00000));  // 480
  const __mmask16 too_small =
      _mm512_cmplt_epu32_mask(magnitude, _mm512_set1_epi32(0x3C800000));  // 2^-6
  const __mmask16 ordinary = static_cast<__mmask16>(~(too_large | too_small));
  __m512i code = _mm512_setzero_si512();
  if (too_large != 0) code = _mm512_mask_mov_epi32(code, too_large, _mm512_set1_epi32(0x7F));
  if (too_small != 0) {
    // 2^14: its ulp is 2^-9, E4M3's smallest step.
    const __m512i anchor = _mm512_set1_epi32(0x46800000);
    const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(anchor));
    code = _mm512_mask_sub_epi32(code, too_small, _mm512_castps_si512(sum), anchor);
  }
  if (ordinary != 0) {
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 20), _mm512_set1_epi32(1));
    const __m512i rebias = _mm512_set1_epi32(static_cast<int32_t>(0xC4000000u + 0x7FFFFu));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(magnitude, rebias), odd);
    code = _mm512_mask_srli_epi32(code, ordinary, rounded, 20);
  }
  return _mm512_or_si512(code, _mm512_srli_epi32(sign, 24));
}

// The values of 16 codes.
inline __m512i decode16(__m128i codes) {
  const __m512i code = _mm512_cvtepu8_epi32(codes);
  const __m512i fraction = _mm512_and_si512(code, _mm512_set1_epi32(0x07));
  const __m512i exponent = _mm512_and_si512(_mm512_srli_epi32(code, 3), _mm512_set1_epi32(0x0F));
  const __m512i magnitude =
      _mm512_and_si512(_mm512_slli_epi32(code, 24), _mm512_set1_epi32(INT32_MAX));
  const __mmask16 no_exponent = _mm512_testn_epi32_mask(exponent, exponent);
  const __mmask16 no_fraction = _mm512_testn_epi32_mask(fraction, fraction);
  const __mmask16 subnormal = static_cast<__mmask16>(no_exponent & ~no_fraction);
  const __mmask16 zero = static_cast<__mmask16>(no_exponent & no_fraction);
  __m512i shift = _mm512_setzero_si512();
  if (subnormal != 0) {
    const __m512i one = _mm512_set1_epi32(1);
    const __mmask16 below4 = _mm512_cmplt_epi32_mask(fraction, _mm512_set1_epi32(4));
    const __mmask16 below2 = _mm512_cmplt_epi32_mask(fraction, _mm512_set1_epi32(2));
    __m512i places = _mm512_mask_add_epi32(one, below4, one, one);
    places = _mm512_mask_add_epi32(places, below2, places, one);
    shift = _mm512_maskz_mov_epi32(subnormal, places);
  }
  const __m512i bias = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(0x78), shift), 23);
  __m512i bits = _mm512_add_epi32(_mm512_srli_epi32(_mm512_sllv_epi32(magnitude, shift), 4), bias);
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7F000000));
  if (nan != 0) bits = _mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7FC00000));
  if (zero != 0) bits = _mm512_mask_mov_epi32(bits, zero, _mm512_setzero_si512());
  const __m512i sign = _mm512_and_si512(code, _mm512_set1_epi32(0x80));
  return _mm512_or_si512(bits, _mm512_slli_epi32(sign, 24));
}

}  // namespace

void aten_cast_e4m3(const float *in, int64_t n, float scale, uint8_t *out) {
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512 high = _mm512_set1_ps(448.0f);
  const __m512 low = _mm512_set1_ps(-448.0f);
  for (int64_t i = 0; i < n; i += 64) {
    for (int64_t j = i; j < i + 64; j += 16) {
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(in + j), factor);
      const __m512 clamped = _mm512_max_ps(_mm512_min_ps(scaled, high), low);
      _mm_storeu_si128(reinterpret_cast<__m128i *>(out + j),
                       _mm512_cvtepi32_epi8(encode16(clamped)));
    }
  }
}

void aten_decode_e4m3(const uint8_t *in, int64_t n, float *out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(in + i));
    _mm512_storeu_si512(out + i, decode16(codes));
  }
}

}  // namespace octavo::bench
