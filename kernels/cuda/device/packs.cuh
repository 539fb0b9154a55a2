/* kernels/cuda/device/packs.cuh: eight adjacent elements, one thread's share of a tensor whose
 * dtype is known when the kernel runs.
 *
 * Elements are decoded for arithmetic and encoded after it, so a NaN is the device's own, as the
 * conversions of words.cuh give it: the contract says that NaN stays NaN, not which. Registers are
 * never indexed by a variable: what is done element by element goes through a Stage.
 */
#pragma once

#include "kernels/cuda/device/words.cuh"

namespace octavo::cuda {

constexpr int kPack = 8; /* elements */
constexpr int kPackWords = 4;

/* As memory holds them: two, four or eight words. */
struct RawPack {
  Pack<uint32_t, kPackWords> low;
  Pack<uint32_t, kPackWords> high;

  /* A word's number must be known when the code is compiled. */
  __device__ __forceinline__ uint32_t &word(int i) {
    return i < kPackWords ? low.at[i] : high.at[i - kPackWords];
  }
  __device__ __forceinline__ uint32_t word(int i) const {
    return i < kPackWords ? low.at[i] : high.at[i - kPackWords];
  }
};

/* Room for the pack of one thread, which alone uses it. */
union Stage {
  RawPack raw;
  uint8_t bytes[4 * kPack];
  uint16_t halves[kPack];
  float values[kPack];
};

template <typename Format>
__device__ __forceinline__ void decode_words(const RawPack &raw, float (&values)[kPack]) {
#pragma unroll
  for (int i = 0; i < kWords<Format, kPack>; ++i)
    split(Format{}, raw.word(i), values + i * kPerWord<Format>);
}

__device__ __forceinline__ void decode_pack(uint32_t dtype, const RawPack &raw,
                                            float (&values)[kPack]) {
  switch (dtype) {
    case OCTAVO_F32: return decode_words<F32>(raw, values);
    case OCTAVO_BF16: return decode_words<Bf16>(raw, values);
    case OCTAVO_F16: return decode_words<F16>(raw, values);
    case OCTAVO_E4M3FN: return decode_words<E4m3>(raw, values);
    default: return decode_words<E5m2>(raw, values);
  }
}

/* Saturates, as all tensors with a scale do. */
template <typename Format>
__device__ __forceinline__ void cast_words(const float (&values)[kPack], RawPack *raw) {
#pragma unroll
  for (int i = 0; i < kWords<Format, kPack>; ++i)
    raw->word(i) = word_of<Format>(values + i * kPerWord<Format>);
}

/* To a plain dtype, where overflow is infinity. */
template <typename Format>
__device__ __forceinline__ void round_words(const float (&values)[kPack], RawPack *raw) {
#pragma unroll
  for (int i = 0; i < kWords<Format, kPack>; ++i)
    raw->word(i) = rounded_word(Format{}, values + i * kPerWord<Format>);
}

__device__ __forceinline__ void round_pack(uint32_t dtype, const float (&values)[kPack],
                                           RawPack *raw) {
  switch (dtype) {
    case OCTAVO_F32: return round_words<F32>(values, raw);
    case OCTAVO_BF16: return round_words<Bf16>(values, raw);
    default: return round_words<F16>(values, raw);
  }
}

/* `is_scaled`: an f16 with a scale. */
__device__ __forceinline__ void encode_pack(uint32_t dtype, bool is_scaled,
                                            const float (&values)[kPack], RawPack *raw) {
  if (dtype == OCTAVO_E4M3FN) return cast_words<E4m3>(values, raw);
  if (dtype == OCTAVO_E5M2) return cast_words<E5m2>(values, raw);
  if (is_scaled) return cast_words<F16>(values, raw);
  round_pack(dtype, values, raw);
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
