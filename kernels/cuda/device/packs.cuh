/* kernels/cuda/device/packs.cuh: eight adjacent elements, one thread's share of a tensor whose
 * dtype is known when the kernel runs.
 *
 * Elements are decoded for arithmetic and encoded after it, so a NaN is the device's own: the
 * hardware's conversions give the bits of kernels/format. Registers are never indexed by a
 * variable: what is done element by element goes through a Stage.
 */
#pragma once

#include "kernels/cuda/device/element.cuh"

namespace octavo::cuda {

constexpr int kPack = 8; /* elements */
constexpr int kPackWords = 4;

/* As memory holds them: two, four or eight words. */
struct RawPack {
  Pack<uint32_t, kPackWords> low;
  Pack<uint32_t, kPackWords> high;
};

/* Room for the pack of one thread, which alone uses it. */
union Stage {
  RawPack raw;
  uint8_t bytes[4 * kPack];
  uint16_t halves[kPack];
  float values[kPack];
};

/* Two elements at once, the first one in the low bits. */
template <typename Format>
__device__ __forceinline__ void decode_two(uint32_t bits, float (&values)[2]) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint32_t halves = bits;
  if constexpr (Format::kDtype == OCTAVO_E4M3FN)
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bits)));
  if constexpr (Format::kDtype == OCTAVO_E5M2)
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(bits)));
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(values[0]), "=f"(values[1])
      : "r"(halves));
#else
  constexpr int kBits = 8 * sizeof(typename Format::Stored);
  for (int i = 0; i < 2; ++i)
    values[i] = Format::decode(static_cast<typename Format::Stored>(bits >> (i * kBits)));
#endif
}

template <typename Format>
__device__ __forceinline__ uint32_t cast_two(float first, float second) {
#ifdef OCTAVO_FLOAT8_CONVERSION
  uint16_t codes;
  if constexpr (Format::kDtype == OCTAVO_E4M3FN)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
#else
  return Format::cast(first) | static_cast<uint32_t>(Format::cast(second)) << 8;
#endif
}

__device__ __forceinline__ uint32_t store_two_bf16(float first, float second) {
#ifdef __CUDA_ARCH__
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#else
  return encode_bf16(first) | static_cast<uint32_t>(encode_bf16(second)) << 16;
#endif
}

/* A scaled f16 saturates, a plain one becomes infinite. */
__device__ __forceinline__ uint32_t store_two_f16(float first, float second, bool saturates) {
#ifdef __CUDA_ARCH__
  const float limit = saturates ? kMaxF16 : bits_float(kInfinityBits);
  if (absolute(first) > limit) first = copysignf(limit, first);
  if (absolute(second) > limit) second = copysignf(limit, second);
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#else
  const auto encode = [&](float v) -> uint32_t {
    return saturates ? encode_f16_saturating(v) : encode_f16(v);
  };
  return encode(first) | encode(second) << 16;
#endif
}

template <typename Format>
__device__ __forceinline__ void decode_words(const RawPack &raw, float (&values)[kPack]) {
  constexpr int kTwoBits = 16 * sizeof(typename Format::Stored);
#pragma unroll
  for (int i = 0; i < kPack / 2; ++i) {
    const uint32_t word = raw.low.at[i * kTwoBits / 32];
    float two[2];
    decode_two<Format>(word >> (i * kTwoBits % 32), two);
    values[2 * i] = two[0];
    values[2 * i + 1] = two[1];
  }
}

__device__ __forceinline__ void decode_pack(uint32_t dtype, const RawPack &raw,
                                            float (&values)[kPack]) {
  switch (dtype) {
    case OCTAVO_F32:
#pragma unroll
      for (int i = 0; i < kPackWords; ++i) {
        values[i] = bits_float(static_cast<int32_t>(raw.low.at[i]));
        values[kPackWords + i] = bits_float(static_cast<int32_t>(raw.high.at[i]));
      }
      return;
    case OCTAVO_BF16:
#pragma unroll
      for (int i = 0; i < kPackWords; ++i) {
        values[2 * i] = bits_float(static_cast<int32_t>(raw.low.at[i] << 16));
        values[2 * i + 1] = bits_float(static_cast<int32_t>(raw.low.at[i] & 0xFFFF0000u));
      }
      return;
    case OCTAVO_F16: return decode_words<F16>(raw, values);
    case OCTAVO_E4M3FN: return decode_words<E4m3>(raw, values);
    default: return decode_words<E5m2>(raw, values);
  }
}

template <typename Format>
__device__ __forceinline__ void cast_words(const float (&values)[kPack], RawPack *raw) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float *v = values + 4 * i;
    raw->low.at[i] = cast_two<Format>(v[0], v[1]) | cast_two<Format>(v[2], v[3]) << 16;
  }
}

/* `saturates`: a tensor with a scale; E4M3 and E5M2 always do. */
__device__ __forceinline__ void encode_pack(uint32_t dtype, bool saturates,
                                            const float (&values)[kPack], RawPack *raw) {
  switch (dtype) {
    case OCTAVO_F32:
#pragma unroll
      for (int i = 0; i < kPackWords; ++i) {
        raw->low.at[i] = static_cast<uint32_t>(float_bits(values[i]));
        raw->high.at[i] = static_cast<uint32_t>(float_bits(values[kPackWords + i]));
      }
      return;
    case OCTAVO_BF16:
#pragma unroll
      for (int i = 0; i < kPackWords; ++i)
        raw->low.at[i] = store_two_bf16(values[2 * i], values[2 * i + 1]);
      return;
    case OCTAVO_F16:
#pragma unroll
      for (int i = 0; i < kPackWords; ++i)
        raw->low.at[i] = store_two_f16(values[2 * i], values[2 * i + 1], saturates);
      return;
    case OCTAVO_E4M3FN: return cast_words<E4m3>(values, raw);
    default: return cast_words<E5m2>(values, raw);
  }
}

template <int kBits>
__device__ __forceinline__ void raise_words(const float (&values)[kPack], RawPack *raw) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const int shift = i * kBits % 32;
    uint32_t &word = raw->low.at[i * kBits / 32];
    if (values[i] > 0.0f && (word >> shift & ((1u << kBits) - 1)) == 0) word |= 1u << shift;
  }
}

/* Code 0 of a value above 0 becomes 1; of dtypes that have a scale. */
__device__ __forceinline__ void raise_pack(uint32_t dtype, const float (&values)[kPack],
                                           RawPack *raw) {
  dtype == OCTAVO_F16 ? raise_words<16>(values, raw) : raise_words<8>(values, raw);
}

/* All eight, at an address that is a multiple of their size or of 16; `bytes` of an element. */
__device__ __forceinline__ RawPack load_pack(const void *at, int bytes) {
  RawPack raw = {};
  if (bytes == 4) {
    raw = *static_cast<const RawPack *>(at);
  } else if (bytes == 2) {
    raw.low = *static_cast<const Pack<uint32_t, kPackWords> *>(at);
  } else {
    const auto codes = *static_cast<const Pack<uint32_t, 2> *>(at);
    raw.low.at[0] = codes.at[0];
    raw.low.at[1] = codes.at[1];
  }
  return raw;
}

__device__ __forceinline__ void store_pack(void *at, int bytes, const RawPack &raw) {
  if (bytes == 4) {
    *static_cast<RawPack *>(at) = raw;
  } else if (bytes == 2) {
    *static_cast<Pack<uint32_t, kPackWords> *>(at) = raw.low;
  } else {
    *static_cast<Pack<uint32_t, 2> *>(at) = {{raw.low.at[0], raw.low.at[1]}};
  }
}

/* Where the elements of a pack are that has fewer than eight, or an address or a stride that allows
 * no access to all at once. */
struct PackWalk {
  int64_t row;
  int64_t col;
  int64_t cols;

  /* Calls body(i, offset) for the first n elements. */
  template <typename Body>
  __device__ void each(int n, int64_t stride, Body &&body) const {
    int64_t at = row * stride + col;
    int64_t left = cols - col;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      body(i, at);
      ++at;
      if (--left == 0) at += stride - cols, left = cols;
    }
  }
};

/* The element with this number in the order of rows; `per_cols` is 1 / cols, with which the row is
 * right but for a last unit, put right here: a division of 64 bits is a hundred instructions. */
__device__ inline PackWalk walk_from(int64_t first, int64_t cols, double per_cols) {
  auto row = static_cast<int64_t>(static_cast<double>(first) * per_cols);
  if (row * cols > first) --row;
  if ((row + 1) * cols <= first) ++row;
  return {row, first - row * cols, cols};
}

__device__ inline RawPack load_each(const void *data, int bytes, int64_t stride,
                                    const PackWalk &walk, int n, Stage *stage) {
  stage->raw = {};
  walk.each(n, stride, [&](int i, int64_t at) {
    if (bytes == 4)
      stage->values[i] = static_cast<const float *>(data)[at];
    else if (bytes == 2)
      stage->halves[i] = static_cast<const uint16_t *>(data)[at];
    else
      stage->bytes[i] = static_cast<const uint8_t *>(data)[at];
  });
  return stage->raw;
}

__device__ inline void store_each(void *data, int bytes, int64_t stride, const PackWalk &walk,
                                  int n, const RawPack &raw, Stage *stage) {
  stage->raw = raw;
  walk.each(n, stride, [&](int i, int64_t at) {
    if (bytes == 4)
      static_cast<float *>(data)[at] = stage->values[i];
    else if (bytes == 2)
      static_cast<uint16_t *>(data)[at] = stage->halves[i];
    else
      static_cast<uint8_t *>(data)[at] = stage->bytes[i];
  });
}

}  // namespace octavo::cuda
