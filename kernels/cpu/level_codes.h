/* kernels/cpu/level_codes.h: codes to 16-bit values by a table in registers, and to fp32 by way of
 * f16; included by level.cpp only.
 *
 * A code of 8 bits has 128 magnitudes, which fill four vectors of AVX-512 or 16 of NEON; the sign
 * bit moves to the top of the result. What the table holds is the caller's matter, so a scale, a
 * rounding and NaN cost nothing.
 *
 * Without a table: E5M2 is the upper half of f16. E4M3, whose bias is 7, becomes f16, whose bias is
 * 15, with its exponent and its mantissa at the places of f16's and 2^-8 of its value; subnormal
 * codes become subnormal f16. Both conversions and the product with 2^8 are exact.
 */
#pragma once

#include "kernels/cpu/level_cast_vectors.h"

namespace octavo {
namespace {

#if defined(__AVX512BW__) || defined(OCTAVO_NEON)

/* The bf16 patterns of the magnitudes of a format of 8 bits: every one is a bf16 number. */
template <int kMantissaBits, int kBias>
struct Bf16Table {
  uint16_t at[128] = {};
  constexpr Bf16Table() {
    constexpr int kUnits = 1 << kMantissaBits;
    constexpr bool kHasInfinity = kMantissaBits == 2; /* E5M2 */
    for (int code = 0; code < 128; ++code) {
      int exponent = code / kUnits;
      int mantissa = code % kUnits;
      int bits = (exponent + 127 - kBias) << 7 | mantissa << (7 - kMantissaBits);
      if (exponent == 0) {
        exponent = 1;
        for (; mantissa != 0 && mantissa < kUnits; mantissa *= 2) --exponent;
        bits = (exponent + 127 - kBias) << 7 | (mantissa % kUnits) << (7 - kMantissaBits);
        if (mantissa == 0) bits = 0;
      }
      if (!kHasInfinity && code == 127) bits = 0x7FC0;
      if (kHasInfinity && code >= 124) bits = code == 124 ? 0x7F80 : 0x7FC0;
      at[code] = static_cast<uint16_t>(bits);
    }
  }
};
template <int kMantissaBits, int kBias>
constexpr Bf16Table<kMantissaBits, kBias> kBf16Of = {};

/* 128 entries of 16 bits. */
struct CodeTable {
#ifdef OCTAVO_NEON
  /* Low and high bytes apart; an instruction looks up 64 of them. */
  uint8x16x4_t low[2];
  uint8x16x4_t high[2];

  explicit CodeTable(const uint16_t *table) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const uint8x16x2_t bytes = vld2q_u8(reinterpret_cast<const uint8_t *>(table + 16 * i));
      low[i / 4].val[i % 4] = bytes.val[0];
      high[i / 4].val[i % 4] = bytes.val[1];
    }
  }

  /* The values of 16 codes. */
  void look_up(Bits codes, Bits *out) const {
    const uint8x16_t index = vandq_u8(as_bytes(codes), vdupq_n_u8(0x7F));
    /* Out of range below 64, where the second look-up then keeps what the first has found. */
    const uint8x16_t upper_index = vsubq_u8(index, vdupq_n_u8(64));
    const uint8x16_t lower = vqtbx4q_u8(vqtbl4q_u8(low[0], index), low[1], upper_index);
    const uint8x16_t upper = vqtbx4q_u8(vqtbl4q_u8(high[0], index), high[1], upper_index);
    const uint8x16_t top = veorq_u8(upper, veorq_u8(as_bytes(codes), index));
    out[0] = bits_of(vzip1q_u8(lower, top));
    out[1] = bits_of(vzip2q_u8(lower, top));
  }
#elif defined(__AVX512VBMI__)
  /* Low and high bytes apart, so that one look-up serves 64 codes. */
  Bits low[2];
  Bits high[2];

  explicit CodeTable(const uint16_t *table) {
    alignas(64) uint8_t bytes[2][128];
    for (int i = 0; i < 128; ++i) {
      bytes[0][i] = static_cast<uint8_t>(table[i]);
      bytes[1][i] = static_cast<uint8_t>(table[i] >> 8);
    }
    for (int half = 0; half < 2; ++half) {
      low[half] = load_bits(bytes[0] + 64 * half);
      high[half] = load_bits(bytes[1] + 64 * half);
    }
  }

  /* The values of 64 codes; the first 32 of them in out[0]. */
  void look_up(Bits codes, Bits *out) const {
    /* What interleaving within 128 bits takes together. */
    const Bits order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const Bits spread = _mm512_permutexvar_epi64(order, codes);
    const Bits lower = _mm512_permutex2var_epi8(low[0], spread, low[1]);
    const Bits upper = _mm512_permutex2var_epi8(high[0], spread, high[1]);
    const Bits sign = _mm512_set1_epi8(-128);
    const Bits top = _mm512_ternarylogic_epi64(upper, spread, sign, 0x78); /* a ^ (b & c) */
    out[0] = _mm512_unpacklo_epi8(lower, top);
    out[1] = _mm512_unpackhi_epi8(lower, top);
  }
#else
  Bits parts[4];

  explicit CodeTable(const uint16_t *table) {
    for (int i = 0; i < 4; ++i) parts[i] = load_bits(table + 32 * i);
  }

  Bits look_up_half(__m256i codes) const {
    const Bits index = _mm512_cvtepu8_epi16(codes);
    const Bits small = _mm512_permutex2var_epi16(parts[0], index, parts[1]);
    const Bits large = _mm512_permutex2var_epi16(parts[2], index, parts[3]);
    const __mmask32 is_large = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x40));
    const Bits value = _mm512_mask_blend_epi16(is_large, small, large);
    const Bits sign = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
    return _mm512_ternarylogic_epi64(value, _mm512_slli_epi16(index, 8), sign, 0x78);
  }

  void look_up(Bits codes, Bits *out) const {
    out[0] = look_up_half(_mm512_castsi512_si256(codes));
    out[1] = look_up_half(_mm512_extracti64x4_epi64(codes, 1));
  }
#endif
};

void look_up_row(const uint16_t *table, const uint8_t *codes, int64_t n, uint16_t *out,
                 bool streams) {
  const CodeTable values(table);
  int64_t i = 0;
  if (kHasStreams && streams) {
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % 64);
    const int64_t head = (64 - past) % 64 / 2;
    for (; i < head && i < n; ++i) out[i] = table[codes[i]];
    for (; i + kCastStep <= n; i += kCastStep) {
      Bits both[2];
      values.look_up(load_bits(codes + i), both);
      stream_bits(out + i, both[0]);
      stream_bits(out + i + kCastStep / 2, both[1]);
    }
    end_streams();
  }
  for (; i + kCastStep <= n; i += kCastStep) {
    Bits both[2];
    values.look_up(load_bits(codes + i), both);
    store_bits(out + i, both[0]);
    store_bits(out + i + kCastStep / 2, both[1]);
  }
  for (; i < n; ++i) out[i] = table[codes[i]];
}

constexpr void (*kLookUp)(const uint16_t *, const uint8_t *, int64_t, uint16_t *,
                          bool) = &look_up_row;

#else

constexpr void (*kLookUp)(const uint16_t *, const uint8_t *, int64_t, uint16_t *, bool) = nullptr;

#endif

#ifdef __AVX2__

constexpr int kHalfCodes = 16; /* that values_of_codes takes */

/* The fp32 values of kHalfCodes codes of E4M3 (3) or E5M2 (2). */
template <int kMantissaBits>
inline void values_of_codes(const void *codes, Bits *values) {
  constexpr bool kIsE4m3 = kMantissaBits == 3;
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i *>(codes)));
  /* A widened code has 9 copies of its sign, two of which remain next to the exponent of E4M3. */
  const __m256i halves =
      kIsE4m3 ? _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4080))
              : _mm256_slli_epi16(wide, 8);
  const __m256i magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7FFF));
  const __m256i nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(kIsE4m3 ? 0x3F7F : 0x7C00));
  if (__builtin_expect(!_mm256_testz_si256(nan, nan), 0)) {
    const auto *from = static_cast<const uint8_t *>(codes);
    alignas(64) float each[kHalfCodes];
    for (int i = 0; i < kHalfCodes; ++i)
      each[i] = kIsE4m3 ? decode_e4m3(from[i]) : decode_e5m2(from[i]);
    for (int i = 0; i < kHalfCodes / kCastLanes; ++i) values[i] = load_bits(each + i * kCastLanes);
    return;
  }
  const float factor = kIsE4m3 ? 256.0f : 1.0f;
#ifdef __AVX512BW__
  values[0] = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(factor)));
#else
  const __m128i parts[] = {_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)};
  for (int i = 0; i < 2; ++i)
    values[i] =
        _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtph_ps(parts[i]), _mm256_set1_ps(factor)));
#endif
}

#endif

}  // namespace
}  // namespace octavo
