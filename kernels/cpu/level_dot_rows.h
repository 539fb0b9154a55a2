/* kernels/cpu/level_dot_rows.h: codes and bf16 as pairs for the dot product, row by row; included
 * by level.cpp only.
 *
 * A code becomes bf16 by two look-ups of its seven magnitude bits, one for each byte of the result,
 * and its sign bit on top.
 */
#pragma once

#include <immintrin.h>

#include "kernels/cpu/dot_loops.h"
#include "octavo/tensor.h"

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo
