/* kernels/cpu/level_update_values.h: kGroup elements of fp32 or scaled f16 to and from four vectors
 * of fp32; included by level.cpp only.
 *
 * What a step or a sum needs of a format, exact and without a buffer between: a Reader gives vector
 * i of a group, a Writer takes it. Codes are written saturated and from numbers only: whoever
 * stores them must know that no value is NaN. level_update_codes.h has the formats of 8 bits.
 */
#pragma once

#include "kernels/cpu/level_cast_codes.h"
#include "kernels/cpu/level_tile.h"

#ifdef OCTAVO_CAST_VECTORS

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo

#endif
