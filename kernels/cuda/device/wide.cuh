/* kernels/cuda/device/wide.cuh: sixteen elements of a thread at once, converted in pairs and
 * accessed 16 bytes at a time.
 *
 * Who must keep the sign of a NaN looks for NaN first: larger_magnitude finds one among the values
 * that it sees anyway.
 */
#pragma once

#include "kernels/cuda/device/words.cuh"

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
