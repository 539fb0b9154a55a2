/* kernels/cuda/device/words.cuh: 32 bits of neighbouring elements, converted in pairs.
 *
 * Paired conversions give the codes and values of element.cuh for numbers. A NaN comes out as a NaN
 * without its sign and payload. The C++ of each conversion gives what PTX ISA says of the
 * instruction, that NaN included.
 */
#pragma once

#include "kernels/cuda/device/element.cuh"

namespace octavo::cuda {

/* The codes of two scaled values, the first in the low bits; that of NaN is positive. */
__device__ __forceinline__ uint32_t pair_of(E4m3, float low, float high) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  const auto code = [](float v) -> uint32_t { return is_nan(v) ? 0x7Fu : encode_e4m3(v); };
  return code(low) | code(high) << 8;
#endif
}

__device__ __forceinline__ uint32_t pair_of(E5m2, float low, float high) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  const auto code = [](float v) -> uint32_t { return is_nan(v) ? 0x7Fu : encode_e5m2(v); };
  return code(low) | code(high) << 8;
#endif
}

__device__ __forceinline__ uint32_t pair_of(F16, float low, float high) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint32_t codes;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(high), "f"(low));
  return codes;
#else
  const auto code = [](float v) -> uint32_t {
    return is_nan(v) ? 0x7FFFu : encode_f16_saturating(v);
  };
  return code(low) | code(high) << 16;
#endif
}

/* How many elements 32 bits hold. */
template <typename Format>
constexpr int kPerWord = 4 / static_cast<int>(sizeof(typename Format::Stored));
/* Words of `count` elements. */
template <typename Format, int kCount>
constexpr int kWords = kCount / kPerWord<Format>;

/* The word of scaled values. */
template <typename Out>
__device__ __forceinline__ uint32_t word_of(const float *values) {
  const uint32_t low = pair_of(Out{}, values[0], values[1]);
  if constexpr (kPerWord<Out> == 2) return low;
  return low | pair_of(Out{}, values[2], values[3]) << 16;
}

/* The word of values that are rounded, not saturated: of a plain dtype. */
__device__ __forceinline__ uint32_t rounded_word(F32, const float *values) {
  return static_cast<uint32_t>(float_bits(values[0]));
}
__device__ __forceinline__ uint32_t rounded_word(Bf16, const float *values) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
  return word;
#else
  return encode_bf16(values[0]) | uint32_t{encode_bf16(values[1])} << 16;
#endif
}
__device__ __forceinline__ uint32_t rounded_word(F16, const float *values) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
  return word;
#else
  return encode_f16(values[0]) | uint32_t{encode_f16(values[1])} << 16;
#endif
}

/* The values of a word. */
__device__ __forceinline__ void split(F32, uint32_t word, float *values) {
  values[0] = bits_float(static_cast<int32_t>(word));
}
__device__ __forceinline__ void split(Bf16, uint32_t word, float *values) {
  values[0] = bits_float(static_cast<int32_t>(word << 16));
  values[1] = bits_float(static_cast<int32_t>(word & 0xFFFF0000u));
}
__device__ __forceinline__ void split(F16, uint32_t word, float *values) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
      : "=f"(values[0]), "=f"(values[1])
      : "r"(word));
#else
  values[0] = decode_f16(static_cast<uint16_t>(word));
  values[1] = decode_f16(static_cast<uint16_t>(word >> 16));
#endif
}
/* The pair of f16 that two codes stand for. */
__device__ __forceinline__ uint32_t halves_of(E4m3, uint32_t codes) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return halves;
#else
  return encode_f16(decode_e4m3(static_cast<uint8_t>(codes))) |
         uint32_t{encode_f16(decode_e4m3(static_cast<uint8_t>(codes >> 8)))} << 16;
#endif
}
__device__ __forceinline__ void split(E4m3, uint32_t word, float *values) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  for (int half = 0; half < 2; ++half)
    split(F16{}, halves_of(E4m3{}, word >> 16 * half), values + 2 * half);
#else
  for (int i = 0; i < 4; ++i) values[i] = decode_e4m3(static_cast<uint8_t>(word >> 8 * i));
#endif
}
__device__ __forceinline__ void split(E5m2, uint32_t word, float *values) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  /* E5M2 is the upper half of f16. */
  split(F16{}, __byte_perm(word, 0, 0x1404), values);
  split(F16{}, __byte_perm(word, 0, 0x3424), values + 2);
#else
  for (int i = 0; i < 4; ++i) values[i] = decode_e5m2(static_cast<uint8_t>(word >> 8 * i));
#endif
}

/* The largest magnitude of pairs of f16: of those that are numbers, and of all. */
struct HalfPeak {
  uint32_t numbers;
  uint32_t all;

  __device__ __forceinline__ void add(uint32_t pair) {
#ifdef OCTAVO_FLOAT8_CONVERSION
    asm("{ .reg .b32 a; abs.f16x2 a, %2; max.f16x2 %0, %0, a; max.NaN.f16x2 %1, %1, a; }"
        : "+r"(numbers), "+r"(all)
        : "r"(pair));
#else
    for (int shift = 0; shift < 32; shift += 16) {
      const uint32_t mask = 0xFFFFu << shift;
      const uint32_t half = pair & 0x7FFF7FFFu & mask;
      if (half > (all & mask)) all = (all & ~mask) | half;
      if (half <= 0x7C00u << shift && half > (numbers & mask)) numbers = (numbers & ~mask) | half;
    }
#endif
  }
  __device__ float largest() const {
    float halves[2];
    split(F16{}, numbers, halves);
    return halves[0] > halves[1] ? halves[0] : halves[1];
  }
  __device__ int has_nan() const {
    return (all & 0x7FFF) > 0x7C00 || (all >> 16 & 0x7FFF) > 0x7C00 ? 1 : 0;
  }
};

}  // namespace octavo::cuda
