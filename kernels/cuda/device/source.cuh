/* kernels/cuda/device/source.cuh: where the values of a quantize come from.
 *
 * A source gives fp32 values of a [rows, cols] matrix, four at once, or sixteen where it has wide
 * packs; kernels take it as a template argument, so that a norm or an activation is computed where
 * its result is cast.
 */
#pragma once

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/wide.cuh"

namespace octavo::cuda {

constexpr int kQuad = 4; /* elements that a thread takes at once, of any matrix */

/* fl32(element * factor) of a tensor. */
template <typename In>
struct TensorSource {
  using Wide = WidePack<In>;
  const typename In::Stored *data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  const float *factor; /* on the device; null: 1 */
  bool is_aligned;     /* every row begins where a Pack of kQuad may be */
  float multiplier;    /* *factor, once prepared */

  /* Reads the factor once; otherwise every store could have changed it. */
  __device__ void prepare() {
    if (factor != nullptr) multiplier = *factor;
  }

  __device__ float value(int64_t row, int64_t col) const {
    return scaled(In::decode(data[row * stride + col]));
  }

  /* Elements beyond the matrix are 0 and the result says how many are not; col is a multiple of
   * kQuad. */
  __device__ int quad(int64_t row, int64_t col, float (&values)[kQuad]) const {
    if (row >= rows || col >= cols) {
      for (float &v : values) v = 0.0f;
      return 0;
    }
    const typename In::Stored *from = data + row * stride + col;
    const int64_t left = cols - col;
    if (is_aligned && left >= kQuad) {
      const auto pack = *reinterpret_cast<const Pack<typename In::Stored, kQuad> *>(from);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) values[i] = scaled(In::decode(pack.at[i]));
      return kQuad;
    }
    const int count = left < kQuad ? static_cast<int>(left) : kQuad;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) values[i] = i < count ? scaled(In::decode(from[i])) : 0.0f;
    return count;
  }

  /* Packs one below the other of a matrix that is_wide, all in it. */
  template <int kRows>
  __device__ __forceinline__ void load_whole(int64_t row, int64_t col, Wide (&packs)[kRows]) const {
    const typename In::Stored *from = data + row * stride + col;
#pragma unroll
    for (int r = 0; r < kRows; ++r) packs[r] = Wide::load(from + r * stride);
  }
  /* Beyond the matrix they are 0. */
  template <int kRows>
  __device__ __forceinline__ void load(int64_t row, int64_t col, Wide (&packs)[kRows]) const {
    if (row + kRows <= rows && col < cols) return load_whole(row, col, packs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      packs[r] = {};
      if (row + r < rows && col < cols) packs[r] = Wide::load(data + (row + r) * stride + col);
    }
  }
  /* A NaN loses its sign. Only dtypes that have a scale come with a factor, see has_wide. */
  __device__ __forceinline__ void values(const Wide &pack, float (&to)[kWide]) const {
    pack.values(to);
    if constexpr (!kIsPlain) {
#pragma unroll
      for (float &v : to) v *= multiplier;
    }
  }

  /* Of a tensor. */
  static bool has_wide(const octavo_tensor &t, const float *factor) {
    return is_wide(t) && (!kIsPlain || factor == nullptr);
  }

 private:
  static constexpr bool kIsPlain = In::kDtype == OCTAVO_F32 || In::kDtype == OCTAVO_BF16;
  __device__ float scaled(float v) const {
    return factor == nullptr ? v : scaled_by(v, multiplier);
  }
};

/* Whether packs of kQuad elements of `bytes` may be at the start of every row. */
inline bool rows_are_aligned(const octavo_tensor &t, int64_t bytes) {
  const auto pack = static_cast<uint64_t>(bytes * kQuad);
  return reinterpret_cast<uintptr_t>(t.data) % pack == 0 &&
         (t.rows <= 1 || static_cast<uint64_t>(t.stride * bytes) % pack == 0);
}

template <typename In>
TensorSource<In> tensor_source(const octavo_tensor &t, const float *factor) {
  using Stored = typename In::Stored;
  return {static_cast<const Stored *>(t.data), t.rows, t.cols, t.stride, factor,
          rows_are_aligned(t, sizeof(Stored)), 1.0f};
}

/* kRows packs of kWidth values, one below the other, as a source gives them. */
template <typename Source, int kWidth, int kRows>
struct Patch;

template <typename Source, int kRows>
struct Patch<Source, kWide, kRows> {
  typename Source::Wide packs[kRows];

  __device__ __forceinline__ void load_whole(const Source &source, int64_t row, int64_t col) {
    source.load_whole(row, col, packs);
  }
  __device__ __forceinline__ void load(const Source &source, int64_t row, int64_t col) {
    source.load(row, col, packs);
  }
  __device__ __forceinline__ void values(const Source &source, int r, float (&to)[kWide]) const {
    source.values(packs[r], to);
  }
};

template <typename Source, int kRows>
struct Patch<Source, kQuad, kRows> {
  float packs[kRows][kQuad];
  int counts[kRows]; /* the first of which are in the matrix */

  __device__ __forceinline__ void load(const Source &source, int64_t row, int64_t col) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) counts[r] = source.quad(row + r, col, packs[r]);
  }
  __device__ __forceinline__ void values(const Source &, int r, float (&to)[kQuad]) const {
#pragma unroll
    for (int k = 0; k < kQuad; ++k) to[k] = packs[r][k];
  }
};

/* What a pack's values are; elements beyond the matrix are 0 and do not count. */
template <int kWidth>
__device__ __forceinline__ Stats stats_of(const float (&values)[kWidth]) {
  float most = 0.0f;
#pragma unroll
  for (const float v : values) most = larger_magnitude(most, v);
  if (is_finite(most)) return {float_bits(most), 0};
  Stats stats = {};
#pragma unroll
  for (const float v : values) stats.add(v);
  return stats;
}

template <typename Source, int kRows>
__device__ __forceinline__ bool has_nan(const Source &source,
                                        const Patch<Source, kWide, kRows> &patch) {
  float most = 0.0f;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float values[kWide];
    patch.values(source, r, values);
#pragma unroll
    for (const float v : values) most = larger_magnitude(most, v);
  }
  return is_nan(most);
}

}  // namespace octavo::cuda
