/* kernels/cpu/level_codes.h: values to codes and back in vectors; included by level.cpp only. */
#pragma once

#include "kernels/cpu/level_cast_vectors.h"

namespace octavo {
namespace {

/* Magnitudes to sums whose low bytes are codes, and their packing with the signs of the input.
 *
 * See level_cast_vectors.h for why the sums are right. */

#ifdef OCTAVO_CAST_VECTORS

/* The addend of numbers with the biased exponent `exponent`, see level_cast_vectors.h. */
template <int kMantissaBits, int kBias>
constexpr int32_t addend_of(int32_t exponent) {
  constexpr int32_t kSmallest = 128 - kBias; /* biased exponent of the smallest normal number */
  const int32_t kept = exponent < kSmallest ? kSmallest : exponent;
  return ((kept + 23 - kMantissaBits) << 23) + ((kept - kSmallest) << kMantissaBits);
}

/* The addends of `kEntries` exponents from kFirst on, at the exponent modulo kEntries. */
template <int kMantissaBits, int kBias, int kFirst, int kEntries>
struct AddendTable {
  int32_t at[kEntries] = {};
  constexpr AddendTable() {
    for (int32_t exponent = kFirst; exponent < kFirst + kEntries; ++exponent) {
      at[exponent % kEntries] = addend_of<kMantissaBits, kBias>(exponent);
    }
  }
};

/* kMaxBits: fp32 bits of the largest finite value. */
template <int kMantissaBits, int kBias, int32_t kMaxBits>
struct Encoder {
#ifdef __AVX512BW__
  /* All exponents of the format and the one below: everything smaller is treated like that. */
  static constexpr int kFirst = 127 - kBias;
  static constexpr int kEntries = 1 << (7 - kMantissaBits);
  alignas(64) static constexpr AddendTable<kMantissaBits, kBias, kFirst, kEntries> kTable = {};

  const Bits limit = all_of(kMaxBits);
  const Bits lowest = all_of(kFirst << 23);
  const Bits first = load_bits(kTable.at);
  const Bits second = load_bits(kTable.at + kEntries - kCastLanes);

  /* y: bits of a magnitude, infinity included. */
  Bits operator()(Bits y) const {
    const Bits clamped = smaller(y, limit);
    const Bits exponent = _mm512_srli_epi32(larger(clamped, lowest), 23);
    const Bits addend = kEntries == 16 ? _mm512_permutexvar_epi32(exponent, first)
                                       : _mm512_permutex2var_epi32(first, exponent, second);
    return sum(clamped, addend);
  }
#else
  const Bits limit = all_of(kMaxBits);
  const Bits lowest = all_of((128 - kBias) << 23);
  const Bits exponent_mask = all_of(kInfinityBits);
  const Bits offset = all_of(addend_of<kMantissaBits, kBias>(128 - kBias) - ((128 - kBias) << 23) -
                             ((128 - kBias) << kMantissaBits));

  Bits operator()(Bits y) const {
    const Bits clamped = smaller(y, limit);
    const Bits exponent = and_bits(larger(clamped, lowest), exponent_mask);
    return sum(clamped, plus(plus_shifted<23 - kMantissaBits>(exponent), offset));
  }
#endif
};

using EncoderE4m3 = Encoder<3, 7, 0x43E00000>;
using EncoderE5m2 = Encoder<2, 15, 0x47600000>;

/* Low bytes of four vectors of sums to one vector of codes. kHalves: the sums were widened by
 * low_halves and high_halves, else they are in order. */
template <bool kHalves>
struct Packer {
#ifdef OCTAVO_NEON
  Bits operator()(const Bits *sums, const Bits *raw) const {
    const uint8x16_t top =
        kHalves ? vuzp2q_u8(as_bytes(raw[0]), as_bytes(raw[1])) : bytes_of_four<true>(raw);
    return bits_of(with_top_bits(top, bytes_of_four<false>(sums)));
  }
#elif defined(__AVX512VBMI__)
  struct Index {
    uint8_t at[64] = {};
    /* Where the byte `byte` of the sum of element i of 32 is in two vectors. */
    constexpr explicit Index(int byte) {
      for (int i = 0; i < 64; ++i) {
        const int e = i % 32;
        const int vector = kHalves ? e % 8 / 4 : e / 16;
        const int lane = kHalves ? e / 8 * 4 + e % 4 : e % 16;
        at[i] = static_cast<uint8_t>(vector * 64 + lane * 4 + byte);
      }
    }
  };
  struct HalfIndex {
    uint8_t at[64] = {};
    constexpr HalfIndex() {
      for (int i = 0; i < 64; ++i) at[i] = static_cast<uint8_t>(i * 2 + 1);
    }
  };
  alignas(64) static constexpr Index kCodes = Index(0);
  alignas(64) static constexpr Index kSigns = Index(3);
  alignas(64) static constexpr HalfIndex kHalfSigns = {};

  const Bits codes = load_bits(kCodes.at);
  const Bits signs = load_bits(kHalves ? kHalfSigns.at : kSigns.at);
  const Bits sign_mask = _mm512_set1_epi8(-128);

  static Bits gather(const Bits *v, Bits index) {
    const Bits low = _mm512_permutex2var_epi8(v[0], index, v[1]);
    const Bits high = _mm512_permutex2var_epi8(v[2], index, v[3]);
    return _mm512_mask_blend_epi64(0xF0, low, high);
  }

  /* raw: the input's vectors, four of fp32 or two of halves. */
  Bits operator()(const Bits *sums, const Bits *raw) const {
    const Bits top = kHalves ? _mm512_permutex2var_epi8(raw[0], signs, raw[1]) : gather(raw, signs);
    return _mm512_ternarylogic_epi64(gather(sums, codes), top, sign_mask, 0xF8); /* a | (b & c) */
  }
#else
  /* Packing works within 128 bits, so groups of four codes come out of order. */
  static constexpr int kGroups = kCastLanes;
  struct Index {
    int32_t at[kGroups] = {};
    constexpr Index() {
      constexpr int kParts = kGroups / 4; /* of 128 bits */
      for (int group = 0; group < kGroups; ++group) {
        const int pair = group / (2 * kParts) * 2; /* of the vectors 0, 1 or 2, 3 */
        const int rest = group % (2 * kParts);
        const int vector = kHalves ? pair + rest % 2 : group / kParts;
        const int part = kHalves ? rest / 2 : group % kParts;
        at[group] = part * 4 + vector;
      }
    }
  };
  alignas(64) static constexpr Index kOrder = {};
  const Bits order = load_bits(kOrder.at);
  const Bits low_byte = all_of(0xFF);

#ifdef __AVX512BW__
  const Bits sign_mask = _mm512_set1_epi8(-128);
  Bits operator()(const Bits *sums, const Bits *raw) const {
    const Bits first =
        _mm512_packus_epi32(and_bits(sums[0], low_byte), and_bits(sums[1], low_byte));
    const Bits second =
        _mm512_packus_epi32(and_bits(sums[2], low_byte), and_bits(sums[3], low_byte));
    const Bits codes = _mm512_packus_epi16(first, second);
    /* Signed saturation keeps the sign. */
    const Bits top = kHalves ? _mm512_packs_epi16(raw[0], raw[1])
                             : _mm512_packs_epi16(_mm512_packs_epi32(raw[0], raw[1]),
                                                  _mm512_packs_epi32(raw[2], raw[3]));
    return _mm512_permutexvar_epi32(
        order, _mm512_ternarylogic_epi64(codes, top, sign_mask, 0xF8)); /* a | (b & c) */
  }
#else
  const Bits sign_mask = _mm256_set1_epi8(-128);
  Bits operator()(const Bits *sums, const Bits *raw) const {
    const Bits first =
        _mm256_packus_epi32(and_bits(sums[0], low_byte), and_bits(sums[1], low_byte));
    const Bits second =
        _mm256_packus_epi32(and_bits(sums[2], low_byte), and_bits(sums[3], low_byte));
    const Bits codes = _mm256_packus_epi16(first, second);
    /* Signed saturation keeps the sign. */
    const Bits top = kHalves ? _mm256_packs_epi16(raw[0], raw[1])
                             : _mm256_packs_epi16(_mm256_packs_epi32(raw[0], raw[1]),
                                                  _mm256_packs_epi32(raw[2], raw[3]));
    return _mm256_permutevar8x32_epi32(_mm256_or_si256(codes, and_bits(top, sign_mask)), order);
  }
#endif
#endif
};

#endif

/* Codes to 16-bit values by a table in registers, and to fp32 by way of f16.
 *
 * A code of 8 bits has 128 magnitudes, which fill four vectors of AVX-512 or 16 of NEON; the
 * sign bit moves to the top of the result. What the table holds is the caller's matter, so a
 * scale, a rounding and NaN cost nothing.
 *
 * Without a table: E5M2 is the upper half of f16. E4M3, whose bias is 7, becomes f16, whose
 * bias is 15, with its exponent and its mantissa at the places of f16's and 2^-8 of its value;
 * subnormal codes become subnormal f16. Both conversions and the product with 2^8 are exact. */

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

/* Level::load and Level::store.
 *
 * NEON and AVX2 convert f16 with the bits of kernels/format, NaN included. NEON looks codes of
 * 8 bits up, AVX2 converts them by way of f16. The rest is in the plain loops of level_rows.h. */

/* Calls body(first) for steps of `step` elements; gives the first element that is left. */
template <typename Body>
inline int64_t for_steps(int64_t n, int64_t step, Body body) {
  int64_t i = 0;
  for (; i + step <= n; i += step) body(i);
  return i;
}

#ifdef OCTAVO_NEON

/* Two vectors of bf16 to four of fp32. */
inline void store_widened(const Bits *halves, float *out) {
  for (int i = 0; i < 2; ++i) {
    store_bits(out + 8 * i, low_halves(halves[i]));
    store_bits(out + 8 * i + 4, high_halves(halves[i]));
  }
}

void load_all(uint32_t dtype, const void *in, int64_t n, float *out) {
  const auto *codes = static_cast<const uint8_t *>(in);
  const auto *halves = static_cast<const uint16_t *>(in);
  int64_t done = 0;
  if (dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2) {
    const CodeTable table(dtype == OCTAVO_E4M3FN ? kBf16Of<3, 7>.at : kBf16Of<2, 15>.at);
    done = for_steps(n, kCastStep, [&](int64_t i) {
      Bits both[2];
      table.look_up(load_bits(codes + i), both);
      store_widened(both, out + i);
    });
    return load_row(dtype, codes + done, n - done, out + done);
  }
  if (dtype == OCTAVO_F16) {
    done = for_steps(n, kCastStep, [&](int64_t i) {
      for (int v = 0; v < 4; ++v) store_bits(out + i + 4 * v, widen_f16(halves + i + 4 * v));
    });
    return load_row(dtype, halves + done, n - done, out + done);
  }
  load_row(dtype, in, n, out);
}

void store_all(uint32_t dtype, const float *in, int64_t n, void *out) {
  if (dtype != OCTAVO_F16) return store_row(dtype, in, n, out);
  auto *halves = static_cast<uint16_t *>(out);
  const int64_t done = for_steps(n, kCastStep, [&](int64_t i) {
    for (int v = 0; v < 4; ++v) {
      const float16x4_t narrow = vcvt_f16_f32(vld1q_f32(in + i + 4 * v));
      vst1_u16(halves + i + 4 * v, vreinterpret_u16_f16(narrow));
    }
  });
  store_row(dtype, in + done, n - done, halves + done);
}

#else

#ifdef __AVX2__

template <int kMantissaBits>
int64_t load_codes(const uint8_t *codes, int64_t n, float *out) {
  return for_steps(n, kHalfCodes, [&](int64_t i) {
    Bits values[kHalfCodes / kCastLanes];
    values_of_codes<kMantissaBits>(codes + i, values);
    for (int v = 0; v < kHalfCodes / kCastLanes; ++v)
      store_bits(out + i + v * kCastLanes, values[v]);
  });
}

void load_all(uint32_t dtype, const void *in, int64_t n, float *out) {
  const auto *codes = static_cast<const uint8_t *>(in);
  const auto *halves = static_cast<const uint16_t *>(in);
  if (dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2) {
    const int64_t done =
        dtype == OCTAVO_E4M3FN ? load_codes<3>(codes, n, out) : load_codes<2>(codes, n, out);
    return load_row(dtype, codes + done, n - done, out + done);
  }
  if (dtype == OCTAVO_F16) {
    const int64_t done =
        for_steps(n, kCastLanes, [&](int64_t i) { store_bits(out + i, widen_f16(halves + i)); });
    return load_row(dtype, halves + done, n - done, out + done);
  }
  load_row(dtype, in, n, out);
}

void store_all(uint32_t dtype, const float *in, int64_t n, void *out) {
  if (dtype != OCTAVO_F16) return store_row(dtype, in, n, out);
  auto *halves = static_cast<uint16_t *>(out);
  const int64_t done =
      for_steps(n, kCastLanes, [&](int64_t i) { store_f16(halves + i, load_bits(in + i)); });
  store_row(dtype, in + done, n - done, halves + done);
}

#else
constexpr auto *load_all = &load_row;
constexpr auto *store_all = &store_row;
#endif

#endif

}  // namespace
}  // namespace octavo
