/* kernels/cpu/level_update_codes.h: kGroup codes of E4M3 or E5M2 to and from four vectors of fp32,
 * as level_update_values.h does for wider formats; included by level.cpp only.
 *
 * Where bytes can be permuted, codes are decoded by a table of bf16 patterns, else by way of f16
 * (level_codes.h). They are encoded as in level_cast_codes.h.
 */
#pragma once

#include "kernels/cpu/level_codes.h"
#include "kernels/cpu/level_update_values.h"

#ifdef OCTAVO_CAST_VECTORS

namespace octavo {
namespace {

#ifdef __AVX512VBMI__
/* One byte of each entry of Bf16Table. */
template <int kMantissaBits, int kBias, bool kHigh>
struct Bf16Bytes {
  uint8_t at[128] = {};
  constexpr Bf16Bytes() {
    const Bf16Table<kMantissaBits, kBias> table;
    for (int code = 0; code < 128; ++code) {
      at[code] = static_cast<uint8_t>(kHigh ? table.at[code] >> 8 : table.at[code] & 0xFF);
    }
  }
};
#endif

template <int kMantissaBits, int kBias, typename Encoder>
struct Float8Values {
  static constexpr int kBytes = 1;
  const Encoder encode = {};
  const Packer<false> pack = {};

#ifdef OCTAVO_NEON
  const CodeTable table = CodeTable(kBf16Of<kMantissaBits, kBias>.at);

  void load(const char *from, Group &out) const {
    Bits halves[2];
    table.look_up(load_bits(from), halves);
    for (int i = 0; i < 2; ++i) {
      out[2 * i] = as_floats(low_halves(halves[i]));
      out[2 * i + 1] = as_floats(high_halves(halves[i]));
    }
  }
#elif defined(__AVX512VBMI__)
  alignas(64) static constexpr Bf16Bytes<kMantissaBits, kBias, false> kLow = {};
  alignas(64) static constexpr Bf16Bytes<kMantissaBits, kBias, true> kHigh = {};
  const Bits low0 = load_bits(kLow.at);
  const Bits low1 = load_bits(kLow.at + 64);
  const Bits high0 = load_bits(kHigh.at);
  const Bits high1 = load_bits(kHigh.at + 64);
  const Bits sign = _mm512_set1_epi8(-128);
  /* Interleaving works within 128 bits: a transposition of groups of four bytes before it makes
   * the results come out in order. */
  const Bits order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);

  void load(const char *from, Group &out) const {
    const Bits codes = _mm512_permutexvar_epi32(order, load_bits(from));
    const Bits low = _mm512_permutex2var_epi8(low0, codes, low1);
    const Bits top = _mm512_permutex2var_epi8(high0, codes, high1);
    const Bits high = _mm512_ternarylogic_epi64(top, codes, sign, 0xF8); /* a | (b & c) */
    const Bits first = _mm512_unpacklo_epi8(low, high);
    const Bits second = _mm512_unpackhi_epi8(low, high);
    out[0] = _mm512_castsi512_ps(low_halves(first));
    out[1] = _mm512_castsi512_ps(high_halves(first));
    out[2] = _mm512_castsi512_ps(low_halves(second));
    out[3] = _mm512_castsi512_ps(high_halves(second));
  }
#else
  void load(const char *from, Group &out) const {
    constexpr int kVectors = kHalfCodes / kLanes;
#pragma GCC unroll 4
    for (int i = 0; i < kGroupVectors; i += kVectors) {
      Bits values[kVectors];
      values_of_codes<kMantissaBits>(from + i * kLanes, values);
#pragma GCC unroll 2
      for (int k = 0; k < kVectors; ++k) out[i + k] = as_values(as_bits(values[k]));
    }
  }
#endif

  struct Reader {
    Group values;
    Vector operator()(int i) const { return values[i]; }
  };
  struct Writer {
    const Float8Values &format;
    char *to;
    Bits raw[kGroupVectors];
    Bits sums[kGroupVectors];
    template <bool>
    void set(int i, Vector value, LaneMask raised) {
      const UpdateBits bits = as_bits(value);
      raw[i] = as_lanes(bits);
      sums[i] = format.encode(as_lanes(bits & kMagnitudeMask));
      if (raised != 0) raise(i, value);
    }
    /* One code less where the one that was set undoes the decay from `old` to `value`, see
     * undoes_decay of kernels/format. */
    void shrink(int i, Vector value, Vector old, Vector limit, Vector scale_inv) {
      const Vector from = as_values(as_bits(old) & kMagnitudeMask);
      const Vector to_value = as_values(as_bits(value) & kMagnitudeMask);
      const Vector stored =
          as_values(magnitude_of<kMantissaBits, kBias>(as_bits(sums[i]) & 0xFF)) * scale_inv;
      const UpdateBits is_less = static_cast<UpdateBits>(to_value < from) &
                                 static_cast<UpdateBits>(to_value <= limit * from) &
                                 static_cast<UpdateBits>(stored + stored > to_value + from);
      sums[i] = as_lanes(as_bits(sums[i]) + is_less);
    }
    /* Code 0 of every value above 0 becomes 1, also where its product with the scale is 0. */
    void raise(int i, Vector value) {
      const UpdateBits is_raised = ((as_bits(sums[i]) & 0xFF) == 0) & (as_bits(value) > 0);
      sums[i] = as_lanes(as_bits(sums[i]) - is_raised);
    }
    /* The code of vector i without its sign. */
    UpdateBits magnitude(int i) const { return as_bits(sums[i]) & 0xFF; }
    void finish() const { store_bits(to, format.pack(sums, raw)); }
  };
  Reader read(const char *from) const {
    Reader reader;
    load(from, reader.values);
    return reader;
  }
  Writer write(char *to) const {
    return {*this, to, {}, {}};
  }
};

using E4m3Values = Float8Values<3, 7, EncoderE4m3>;
using E5m2Values = Float8Values<2, 15, EncoderE5m2>;

}  // namespace
}  // namespace octavo

#endif
