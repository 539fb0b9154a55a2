/* kernels/cpu/level_cast_codes.h: magnitudes to sums whose low bytes are codes, and their packing
 * with the signs of the input; included by level.cpp only.
 *
 * See level_cast_vectors.h for why the sums are right.
 */
#pragma once

#include "kernels/cpu/level_cast_vectors.h"

#ifdef OCTAVO_CAST_VECTORS

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo

#endif
