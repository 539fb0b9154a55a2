/* kernels/cuda/device/wide.cuh: sixteen elements of a thread at once, by conversions in pairs and
 * accesses of 16 bytes.
 *
 * Paired conversions give the codes and values of element.cuh for numbers. A NaN comes out as a NaN
 * without its sign and payload, so who must keep those looks for NaN first: larger_magnitude finds
 * one among the values that it sees anyway. The C++ of each conversion gives what PTX ISA says of
 * the instruction, that NaN included.
 */
#pragma once

#include "kernels/cuda/device/element.cuh"

namespace octavo::cuda {

constexpr int kWide = 16;

/* The larger of `most` >= 0 and the magnitude of value; NaN if one of them is. */
__device__ __forceinline__ float larger_magnitude(float most, float value) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  float larger;
  asm("{ .reg .f32 m; abs.f32 m, %2; max.NaN.f32 %0, %1, m; }"
      : "=f"(larger)
      : "f"(most), "f"(value));
  return larger;
#else
  const int32_t magnitude = float_bits(value) & kMagnitudeMask;
  return magnitude > float_bits(most) ? bits_float(magnitude) : most;
#endif
}

/* The same, but a NaN does not count; `most` is none. */
__device__ __forceinline__ float larger_number(float most, float value) {
#ifdef __CUDA_ARCH__
  return fmaxf(most, fabsf(value));
#else
  const int32_t magnitude = float_bits(value) & kMagnitudeMask;
  return magnitude <= kInfinityBits && magnitude > float_bits(most) ? bits_float(magnitude) : most;
#endif
}

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
  values[0] = from_half(static_cast<uint16_t>(word));
  values[1] = from_half(static_cast<uint16_t>(word >> 16));
}
__device__ __forceinline__ void split(E4m3, uint32_t word, float *values) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  for (int half = 0; half < 2; ++half) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
        : "=r"(halves)
        : "h"(static_cast<uint16_t>(word >> 16 * half)));
    split(F16{}, halves, values + 2 * half);
  }
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

/* kWide elements, read from memory or written to it 16 bytes at a time. */
template <typename Format>
struct WidePack {
  static constexpr int kCount = kWords<Format, kWide>;
  uint32_t words[kCount];

  __device__ __forceinline__ static WidePack load(const typename Format::Stored *from) {
    WidePack all;
    const auto *parts = reinterpret_cast<const Pack<uint32_t, 4> *>(from);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const Pack<uint32_t, 4> part = parts[i];
#pragma unroll
      for (int k = 0; k < 4; ++k) all.words[4 * i + k] = part.at[k];
    }
    return all;
  }
  __device__ __forceinline__ void store(typename Format::Stored *to) const {
    auto *parts = reinterpret_cast<Pack<uint32_t, 4> *>(to);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
      parts[i] = {{words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]}};
  }
  /* Of a plain dtype. */
  __device__ __forceinline__ static WidePack rounded(const float (&values)[kWide]) {
    WidePack all;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      all.words[i] = rounded_word(Format{}, values + i * kPerWord<Format>);
    return all;
  }
  __device__ __forceinline__ void values(float (&to)[kWide]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) split(Format{}, words[i], to + i * kPerWord<Format>);
  }
};

/* Whether a matrix is whole packs of kWide elements, each where 16 bytes may be read at once. */
inline bool is_wide(const octavo_tensor &t) {
  const auto row_bytes = static_cast<uint64_t>(t.stride * (OCTAVO_DTYPE_BITS(t.dtype) / 8));
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.cols % kWide == 0 &&
         (t.rows <= 1 || row_bytes % 16 == 0);
}

}  // namespace octavo::cuda
