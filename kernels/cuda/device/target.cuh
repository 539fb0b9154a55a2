/* kernels/cuda/device/target.cuh: values become codes, on their way to out and out_t. */
#pragma once

#include "kernels/cuda/device/source.cuh"

namespace octavo::cuda {

/* The codes of kWidth neighbours in a row. */
template <typename Out, int kWidth>
struct Codes {
  uint32_t words[kWords<Out, kWidth>];

  /* A word's number must be known when the code is compiled: registers have no index. */
  __device__ __forceinline__ void put(int k, typename Out::Stored code) {
    constexpr int kBits = 32 / kPerWord<Out>;
    words[k / kPerWord<Out>] |= static_cast<uint32_t>(code) << (k % kPerWord<Out> * kBits);
  }
  __device__ __forceinline__ typename Out::Stored get(int k) const {
    constexpr int kBits = 32 / kPerWord<Out>;
    return static_cast<typename Out::Stored>(words[k / kPerWord<Out>] >>
                                             (k % kPerWord<Out> * kBits));
  }
  __device__ __forceinline__ WidePack<Out> pack() const {
    WidePack<Out> all;
#pragma unroll
    for (int i = 0; i < all.kCount; ++i) all.words[i] = words[i];
    return all;
  }
  /* Codes move to the front, and this one becomes the last. */
  __device__ __forceinline__ void push(typename Out::Stored code) {
    constexpr int kBits = 32 / kPerWord<Out>;
    constexpr int kLast = kWords<Out, kWidth> - 1;
#pragma unroll
    for (int i = 0; i <= kLast; ++i) {
      const uint32_t next = i < kLast ? words[i + 1] : static_cast<uint32_t>(code);
      words[i] = words[i] >> kBits | next << (32 - kBits);
    }
  }
};

/* A matrix of codes; data is null where the call has none. */
template <typename Out>
struct Target {
  typename Out::Stored *data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  bool is_aligned = false;

  /* Rows of quads; what of them is in the matrix. */
  template <int kRows>
  __device__ __forceinline__ void store(int64_t row, int64_t col,
                                        const Codes<Out, kQuad> (&codes)[kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= rows || col >= cols) return;
      typename Out::Stored *to = data + (row + r) * stride + col;
      if (is_aligned && cols - col >= kQuad) {
        Pack<typename Out::Stored, kQuad> pack;
#pragma unroll
        for (int i = 0; i < kQuad; ++i) pack.at[i] = codes[r].get(i);
        *reinterpret_cast<Pack<typename Out::Stored, kQuad> *>(to) = pack;
        continue;
      }
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        if (col + i < cols) to[i] = codes[r].get(i);
      }
    }
  }
  /* The same for a matrix that is_wide. */
  template <int kRows>
  __device__ __forceinline__ void store(int64_t row, int64_t col,
                                        const Codes<Out, kWide> (&codes)[kRows]) const {
    typename Out::Stored *to = data + row * stride + col;
    if (row + kRows <= rows && col < cols) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) codes[r].pack().store(to + r * stride);
      return;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r < rows && col < cols) codes[r].pack().store(to + r * stride);
    }
  }
};

template <typename Out>
Target<Out> target_of(const octavo_tensor *t) {
  if (t == nullptr) return {};
  using Stored = typename Out::Stored;
  return {static_cast<Stored *>(t->data), t->rows, t->cols, t->stride,
          rows_are_aligned(*t, sizeof(Stored))};
}

/* The code of scaled_by; `keeps_positive`: OCTAVO_QUANTIZE_KEEP_POSITIVE. */
template <typename Out>
__device__ typename Out::Stored code_of(float value, float scale, bool keeps_positive) {
  const typename Out::Stored code = Out::cast(scaled_by(value, scale));
  return keeps_positive && value > 0.0f && code == 0 ? typename Out::Stored{1} : code;
}

/* Whether products with this scale are NaN for NaN alone, and 0 for 0. */
__device__ inline bool is_plain_scale(float scale) {
  return is_finite(scale) && scale > 0.0f;
}

/* Scales of the elements of a pack: one for all, or one each. */
struct OneScale {
  float scale;
  __device__ float at(int) const { return scale; }
};
struct ScaleEach {
  const float *scales;
  __device__ float at(int k) const { return scales[k]; }
};

/* The codes of numbers, where all scales are plain. */
template <typename Out, typename Scales>
__device__ __forceinline__ Codes<Out, kWide> cast_numbers(const float (&values)[kWide],
                                                          const Scales &scales) {
  float scaled[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) scaled[k] = values[k] * scales.at(k);
  Codes<Out, kWide> codes;
#pragma unroll
  for (int i = 0; i < kWords<Out, kWide>; ++i)
    codes.words[i] = word_of<Out>(scaled + i * kPerWord<Out>);
  return codes;
}

/* The same for a quad of anything, of which `count` are in the matrix. */
template <typename Out>
__device__ __forceinline__ Codes<Out, kQuad> cast_quad(const float (&values)[kQuad], int count,
                                                       float scale, bool keeps_positive) {
  Codes<Out, kQuad> codes = {};
#pragma unroll
  for (int k = 0; k < kQuad; ++k) {
    if (k < count) codes.put(k, code_of<Out>(values[k], scale, keeps_positive));
  }
  return codes;
}

}  // namespace octavo::cuda
