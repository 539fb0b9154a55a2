/* kernels/cpu/level_update_values.h: tensors of an update as vectors of fp32; included by level.cpp
 * only. */
#pragma once

#include "kernels/cpu/level_codes.h"
#include "kernels/cpu/level_tile.h"

namespace octavo {
namespace {

/* kGroup elements of fp32 or scaled f16 to and from four vectors of fp32.
 *
 * What a step or a sum needs of a format, exact and without a buffer between: a Reader gives
 * vector i of a group, a Writer takes it. Codes are written saturated and from numbers only:
 * whoever stores them must know that no value is NaN. The formats of 8 bits follow below. */

#ifdef OCTAVO_CAST_VECTORS

constexpr int kGroupVectors = 4;
constexpr int kGroup = kGroupVectors * kLanes;
using Group = Vector[kGroupVectors];

typedef int32_t UpdateBits __attribute__((vector_size(kLanes * sizeof(int32_t))));
/* The same bits as another type. */
inline UpdateBits as_bits(Vector values) {
  return reinterpret_cast<UpdateBits>(values);
}
inline UpdateBits as_bits(Bits bits) {
  return reinterpret_cast<UpdateBits>(bits);
}
inline Bits as_lanes(UpdateBits bits) {
  return reinterpret_cast<Bits>(bits);
}
inline Vector as_values(UpdateBits bits) {
  return reinterpret_cast<Vector>(bits);
}

/* The larger unsigned pattern of each lane. */
inline UpdateBits higher(UpdateBits a, UpdateBits b) {
  return as_bits(larger(as_lanes(a), as_lanes(b)));
}

/* Stores take a mask of the lanes in which a value above 0 becomes at least the smallest code. */
#ifdef __AVX512BW__
using LaneMask = __mmask16;
#else
using LaneMask = int;
#endif
constexpr LaneMask kAllLanes = static_cast<LaneMask>((1u << kLanes) - 1);

#ifdef OCTAVO_NEON
using HalfBits = uint16x4_t;
inline HalfBits load_halves(const void *from) {
  return vld1_u16(static_cast<const uint16_t *>(from));
}
inline void store_halves(void *to, HalfBits halves) {
  vst1_u16(static_cast<uint16_t *>(to), halves);
}
#elif defined(__AVX512BW__)
using HalfBits = __m256i; /* kLanes values of 16 bits */
inline HalfBits load_halves(const void *from) {
  return _mm256_loadu_si256(static_cast<const __m256i *>(from));
}
inline void store_halves(void *to, HalfBits halves) {
  _mm256_storeu_si256(static_cast<__m256i *>(to), halves);
}
#else
using HalfBits = __m128i;
inline HalfBits load_halves(const void *from) {
  return _mm_loadu_si128(static_cast<const __m128i *>(from));
}
inline void store_halves(void *to, HalfBits halves) {
  _mm_storeu_si128(static_cast<__m128i *>(to), halves);
}
#endif

/* code_to_bits of kernels/format for vectors. */
template <int kMantissaBits, int kBias>
inline UpdateBits magnitude_of(UpdateBits code) {
  const UpdateBits normal = (code << (23 - kMantissaBits)) + ((127 - kBias) << 23);
  const Vector unit = Vector{} + bits_float((128 - kBias - kMantissaBits) << 23);
  const UpdateBits subnormal = as_bits(__builtin_convertvector(code, Vector) * unit);
  return code < (1 << kMantissaBits) ? subnormal : normal;
}

struct F32Values {
  static constexpr int kBytes = 4;

  struct Reader {
    const char *from;
    Vector operator()(int i) const { return reinterpret_cast<const VectorInMemory *>(from)[i]; }
  };
  struct Writer {
    char *to;
    template <bool>
    void set(int i, Vector value, LaneMask) {
      reinterpret_cast<VectorInMemory *>(to)[i] = value;
    }
    void finish() const {}
  };
  Reader read(const char *from) const { return {from}; }
  Writer write(char *to) const { return {to}; }
};

/* f16 with a scale, which saturates. */
struct F16Values {
  static constexpr int kBytes = 2;
  static constexpr int kStep = kLanes * kBytes;

#ifdef OCTAVO_NEON
  static Vector widen(HalfBits halves) {
    return vcvt_f32_f16(vreinterpret_f16_u16(halves));
  }
  template <bool kSaturates>
  static HalfBits narrow(Vector value, LaneMask raised) {
    const Vector largest = Vector{} + kMaxF16;
    if (kSaturates) value = vmaxq_f32(vminq_f32(value, largest), -largest);
    const HalfBits halves = vreinterpret_u16_f16(vcvt_f16_f32(value));
    if (raised == 0) return halves;
    const HalfBits is_positive = vmovn_u32(reinterpret_cast<Bits>(value > 0.0f));
    return vmax_u16(halves, vshr_n_u16(is_positive, 15));
  }
#elif defined(__AVX512BW__)
  static Vector widen(HalfBits halves) {
    return _mm512_cvtph_ps(halves);
  }
  template <bool kSaturates>
  static HalfBits narrow(Vector value, LaneMask raised) {
    /* The smaller magnitude with the sign of the first operand. */
    const Vector limited = kSaturates ? _mm512_range_ps(value, _mm512_set1_ps(kMaxF16), 2) : value;
    const HalfBits halves = _mm512_cvtps_ph(limited, _MM_FROUND_TO_NEAREST_INT);
    const LaneMask is_positive = _mm512_mask_cmp_ps_mask(raised, value, Vector{}, _CMP_GT_OQ);
    return _mm256_mask_max_epu16(halves, is_positive, halves, _mm256_set1_epi16(1));
  }
#else
  static Vector widen(HalfBits halves) {
    return _mm256_cvtph_ps(halves);
  }
  /* Also where nothing saturates, values are limited: that is as fast as to round alone. */
  template <bool kSaturates>
  static HalfBits narrow(Vector value, LaneMask raised) {
    const Bits limited = limited_to_f16(as_lanes(as_bits(value)));
    const HalfBits halves =
        _mm256_cvtps_ph(_mm256_castsi256_ps(limited), _MM_FROUND_TO_NEAREST_INT);
    if (raised == 0) return halves;
    const __m256i positive = as_lanes(as_bits(value) > 0);
    const __m128i is_positive =
        _mm_packs_epi32(_mm256_castsi256_si128(positive), _mm256_extracti128_si256(positive, 1));
    return _mm_max_epu16(halves, _mm_srli_epi16(is_positive, 15));
  }
#endif

  struct Reader {
    const char *from;
    Vector operator()(int i) const { return widen(load_halves(from + i * kStep)); }
  };
  struct Writer {
    char *to;
    /* kSaturates: the value may be beyond the range. */
    template <bool kSaturates>
    void set(int i, Vector value, LaneMask raised) const {
      store_halves(to + i * kStep, narrow<kSaturates>(value, raised));
    }
    void finish() const {}
  };
  Reader read(const char *from) const {
    return {from};
  }
  Writer write(char *to) const {
    return {to};
  }
};

#endif

/* Sets of lanes that a comparison of fp32 vectors finds, and arithmetic of bounds. */

#ifdef OCTAVO_CAST_VECTORS

/* The largest unsigned pattern of all lanes. */
inline int32_t highest_lane(UpdateBits bits) {
  return largest_lane(as_lanes(bits));
}

#ifdef OCTAVO_NEON
using LaneSet = UpdateBits; /* all bits of a lane, or none */
inline bool is_empty(LaneSet lanes) {
  return largest_lane(as_lanes(lanes)) == 0;
}
inline int count_of(LaneSet lanes) {
  return -vaddvq_s32(lanes);
}
/* Not a number: not below, too. */
inline LaneSet lanes_not_below(Vector a, Vector b) {
  return ~static_cast<UpdateBits>(a < b);
}
/* The lanes that are above the limit or not a number. */
inline LaneSet lanes_beyond(Vector values, float limit) {
  return ~static_cast<UpdateBits>(values <= Vector{} + limit);
}
inline Vector above_zero(Vector a) {
  return vmaxnmq_f32(a, Vector{});
}
/* a * b + c with one rounding; for bounds only, which no result shows. */
inline Vector fused_sum(Vector a, Vector b, Vector c) {
  return vfmaq_f32(c, a, b);
}
#else
using LaneSet = LaneMask;
inline bool is_empty(LaneSet lanes) {
  return lanes == 0;
}
inline int count_of(LaneSet lanes) {
  return __builtin_popcount(static_cast<unsigned>(lanes));
}
#ifdef __AVX512BW__
inline LaneSet lanes_not_below(Vector a, Vector b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ);
}
inline LaneSet lanes_beyond(Vector values, float limit) {
  return _mm512_cmp_ps_mask(values, _mm512_set1_ps(limit), _CMP_NLE_UQ);
}
inline Vector above_zero(Vector a) {
  return _mm512_max_ps(a, Vector{});
}
inline Vector fused_sum(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
#else
inline LaneSet lanes_not_below(Vector a, Vector b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}
inline LaneSet lanes_beyond(Vector values, float limit) {
  return _mm256_movemask_ps(_mm256_cmp_ps(values, _mm256_set1_ps(limit), _CMP_NLE_UQ));
}
inline Vector above_zero(Vector a) {
  return _mm256_max_ps(a, Vector{});
}
inline Vector fused_sum(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
#endif
#endif

#endif

/* kGroup codes of E4M3 or E5M2 to and from four vectors of fp32, as above for
 * wider formats.
 *
 * Where bytes can be permuted, codes are decoded by a table of bf16 patterns, else by way of
 * f16 (level_codes.h). They are encoded as there, too. */

#ifdef OCTAVO_CAST_VECTORS

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

#endif

}  // namespace
}  // namespace octavo
