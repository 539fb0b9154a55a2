/* kernels/cuda/device/element.cuh: one element of each dtype, to and from fp32, with the bits of
 * kernels/format.
 *
 * The hardware's conversion to FP8 gives the same codes but for the sign of NaN, which is put back.
 */
#pragma once

#include <cuda_runtime.h>

#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "octavo/tensor.h"

namespace octavo::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define OCTAVO_FLOAT8_CONVERSION
#endif

__device__ __forceinline__ uint8_t to_e4m3(float value) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>((codes & 0xFF) | ((float_bits(value) >> 24) & 0x80));
#else
  return encode_e4m3(value);
#endif
}

__device__ __forceinline__ uint8_t to_e5m2(float value) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>((codes & 0xFF) | ((float_bits(value) >> 24) & 0x80));
#else
  return encode_e5m2(value);
#endif
}

/* fl32 of a half, exact but for the payload of NaN. */
__device__ __forceinline__ float from_half(uint16_t half) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  return decode_f16(half);
#endif
}

__device__ __forceinline__ float from_f16(uint16_t half) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  return (half & 0x7FFF) > 0x7C00 ? decode_f16(half) : from_half(half);
#else
  return decode_f16(half);
#endif
}

/* Every value of E4M3 is one of f16; the conversion of NaN has no sign. */
__device__ __forceinline__ float from_e4m3(uint8_t code) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(code)));
  const float value = from_half(static_cast<uint16_t>(halves));
  const uint32_t nan = static_cast<uint32_t>(code & 0x80) << 24 | uint32_t{kQuietNanBits};
  return (code & 0x7F) == 0x7F ? bits_float(static_cast<int32_t>(nan)) : value;
#else
  return decode_e4m3(code);
#endif
}

/* E5M2 is the upper half of f16. */
__device__ __forceinline__ float from_e5m2(uint8_t code) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  const float value = from_half(static_cast<uint16_t>(code << 8));
  const uint32_t nan = static_cast<uint32_t>(code & 0x80) << 24 | uint32_t{kQuietNanBits};
  return (code & 0x7F) > 0x7C ? bits_float(static_cast<int32_t>(nan)) : value;
#else
  return decode_e5m2(code);
#endif
}

/* Stored: how memory holds an element. decode: its value. cast: the saturating code of a value that
 * was scaled; of dtypes that have a scale. store: the rounded value; of plain dtypes. */
struct F32 {
  using Stored = float;
  static constexpr uint32_t kDtype = OCTAVO_F32;
  __device__ static float decode(Stored s) { return s; }
  __device__ static Stored store(float v) { return v; }
};

struct Bf16 {
  using Stored = uint16_t;
  static constexpr uint32_t kDtype = OCTAVO_BF16;
  __device__ static float decode(Stored s) { return decode_bf16(s); }
  __device__ static Stored store(float v) { return encode_bf16(v); }
};

struct F16 {
  using Stored = uint16_t;
  static constexpr uint32_t kDtype = OCTAVO_F16;
  __device__ static float decode(Stored s) { return from_f16(s); }
  __device__ static Stored store(float v) { return encode_f16(v); }
  __device__ static Stored cast(float v) { return encode_f16_saturating(v); }
};

struct E4m3 {
  using Stored = uint8_t;
  static constexpr uint32_t kDtype = OCTAVO_E4M3FN;
  __device__ static float decode(Stored s) { return from_e4m3(s); }
  __device__ static Stored cast(float v) { return to_e4m3(v); }
};

struct E5m2 {
  using Stored = uint8_t;
  static constexpr uint32_t kDtype = OCTAVO_E5M2;
  __device__ static float decode(Stored s) { return from_e5m2(s); }
  __device__ static Stored cast(float v) { return to_e5m2(v); }
};

/* Calls body(F32{}) and so on for the dtype of a checked tensor. */
template <typename Body>
auto with_any(uint32_t dtype, Body &&body) {
  switch (dtype) {
    case OCTAVO_F32: return body(F32{});
    case OCTAVO_BF16: return body(Bf16{});
    case OCTAVO_F16: return body(F16{});
    case OCTAVO_E4M3FN: return body(E4m3{});
    default: return body(E5m2{});
  }
}

template <typename Body>
auto with_plain(uint32_t dtype, Body &&body) {
  switch (dtype) {
    case OCTAVO_F32: return body(F32{});
    case OCTAVO_BF16: return body(Bf16{});
    default: return body(F16{});
  }
}

template <typename Body>
auto with_float8(uint32_t dtype, Body &&body) {
  return dtype == OCTAVO_E4M3FN ? body(E4m3{}) : body(E5m2{});
}

template <typename Body>
auto with_codes(uint32_t dtype, Body &&body) {
  switch (dtype) {
    case OCTAVO_E4M3FN: return body(E4m3{});
    case OCTAVO_E5M2: return body(E5m2{});
    default: return body(F16{});
  }
}

/* kCount adjacent elements, read or written at once where the address allows it. */
template <typename Stored, int kCount>
struct alignas(sizeof(Stored) * kCount) Pack {
  Stored at[kCount];
};

}  // namespace octavo::cuda
