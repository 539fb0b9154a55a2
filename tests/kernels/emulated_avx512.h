/* tests/kernels/emulated_avx512.h: AVX-512 for the levels of the kernels on a processor without it.
 * Every file of a level is compiled with this header before all others.
 *
 * SIMDe computes each intrinsic with AVX2 or plain C++, under the name of the intrinsic. Then the
 * macros say that AVX-512 is there, which choose the levels' code for it.
 */
#ifndef OCTAVO_TESTS_KERNELS_EMULATED_AVX512_H
#define OCTAVO_TESTS_KERNELS_EMULATED_AVX512_H

#include <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cstring>

/* What SIMDe 0.7.4 lacks, as the Intel Intrinsics Guide defines it. */
namespace octavo::emulated {

/* Lanes of T: those that the mask names come from memory, the others are 0. */
template <typename V, typename T, typename Mask>
V load_masked(Mask mask, const void *from) {
  T lanes[sizeof(V) / sizeof(T)] = {};
  for (size_t i = 0; i < sizeof(V) / sizeof(T); ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(&lanes[i], static_cast<const T *>(from) + i, sizeof(T));
  }
  V v;
  std::memcpy(&v, lanes, sizeof(v));
  return v;
}

inline void mask_storeu_epi32(void *to, simde__mmask16 mask, simde__m512i v) {
  int32_t lanes[16];
  std::memcpy(lanes, &v, sizeof(v));
  for (int i = 0; i < 16; ++i) {
    if ((mask >> i & 1) != 0) std::memcpy(static_cast<char *>(to) + 4 * i, &lanes[i], 4);
  }
}

inline simde__m512i joined(simde__m256i low, simde__m256i high) {
  return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(low), high, 1);
}

inline simde__m512 cvtph_ps(simde__m256i v) {
  const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(v)),
               high = _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
  return simde_mm512_castsi512_ps(joined(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}

template <int rounding>
simde__m256i cvtps_ph(simde__m512 v) {
  const simde__m512i bits = simde_mm512_castps_si512(v);
  return _mm256_set_m128i(
      _mm256_cvtps_ph(_mm256_castsi256_ps(simde_mm512_extracti64x4_epi64(bits, 1)), rounding),
      _mm256_cvtps_ph(_mm256_castsi256_ps(simde_mm512_extracti64x4_epi64(bits, 0)), rounding));
}

inline simde__m512i cvtepu8_epi16(simde__m256i v) {
  return joined(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)),
                _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1)));
}

inline simde__m512i cvtepu16_epi32(simde__m256i v) {
  return joined(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)));
}

/* Odd products first, then even ones, each added in one rounding, with subnormals taken and left as
 * 0: the operation that the Intel manual gives for VDPBF16PS. SIMDe adds even ones first, and
 * rounds the products. */
inline __m256 dpbf16_ps(__m256 sum, __m256i a, __m256i b) {
  const __m256i odd = _mm256_set1_epi32(-0x10000);
  const unsigned mode = _mm_getcsr();
  _mm_setcsr((mode & ~0x6000u) | 0x8040u);
  asm volatile("" : "+x"(sum)); /* nothing of the sum moves over the changes of the mode */
  sum = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(a, odd)),
                        _mm256_castsi256_ps(_mm256_and_si256(b, odd)), sum);
  sum = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                        _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)), sum);
  asm volatile("" : "+x"(sum));
  _mm_setcsr(mode);
  return sum;
}

inline simde__m512 dpbf16_ps(simde__m512 sum, __m512bh a, __m512bh b) {
  __m256 sums[2];
  __m256i left[2], right[2];
  std::memcpy(sums, &sum, sizeof(sum));
  std::memcpy(left, &a, sizeof(a));
  std::memcpy(right, &b, sizeof(b));
  for (int i = 0; i < 2; ++i) sums[i] = dpbf16_ps(sums[i], left[i], right[i]);
  std::memcpy(&sum, sums, sizeof(sum));
  return sum;
}

}  // namespace octavo::emulated

#define _mm512_maskz_loadu_epi8(mask, from) \
  octavo::emulated::load_masked<simde__m512i, int8_t>(static_cast<uint64_t>(mask), from)
#define _mm512_maskz_loadu_epi16(mask, from) \
  octavo::emulated::load_masked<simde__m512i, int16_t>(static_cast<uint32_t>(mask), from)
#define _mm512_maskz_loadu_epi32(mask, from) \
  octavo::emulated::load_masked<simde__m512i, int32_t>(static_cast<uint16_t>(mask), from)
#define _mm256_maskz_loadu_epi16(mask, from) \
  octavo::emulated::load_masked<simde__m256i, int16_t>(static_cast<uint16_t>(mask), from)
#define _mm512_mask_storeu_epi32 octavo::emulated::mask_storeu_epi32
#define _mm256_mask_max_epu16(src, mask, a, b) \
  simde_mm256_mask_mov_epi16(src, mask, _mm256_max_epu16(a, b))
#define _mm512_stream_si512 simde_mm512_store_si512
#define _mm512_cmpneq_ps_mask(a, b) simde_mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ)
#define _mm512_mask_cmp_ps_mask(mask, a, b, rule) \
  static_cast<simde__mmask16>((mask)&simde_mm512_cmp_ps_mask(a, b, rule))
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps octavo::emulated::dpbf16_ps
#define _mm512_cvtph_ps octavo::emulated::cvtph_ps
#define _mm512_cvtps_ph(v, rounding) octavo::emulated::cvtps_ph<(rounding)&7>(v)
#define _mm512_cvtepu8_epi16 octavo::emulated::cvtepu8_epi16
#define _mm512_cvtepu16_epi32 octavo::emulated::cvtepu16_epi32

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1
#define __AVX512DQ__ 1
#ifdef OCTAVO_EMULATED_BF16
#define __AVX512VBMI__ 1
#define __AVX512BF16__ 1
#endif

#endif
