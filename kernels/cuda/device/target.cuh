/* kernels/cuda/device/target.cuh: codes on their way to out and, turned over, to out_t. */
#pragma once

#include "kernels/cuda/device/source.cuh"

namespace octavo::cuda {

/* A matrix of codes; data is null where the call has none. */
template <typename Out>
struct Target {
  typename Out::Stored *data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  bool is_aligned = false;

  __device__ void store(int64_t row, int64_t col,
                        const typename Out::Stored (&codes)[kQuad]) const {
    if (row >= rows || col >= cols) return;
    typename Out::Stored *to = data + row * stride + col;
    if (is_aligned && cols - col >= kQuad) {
      Pack<typename Out::Stored, kQuad> pack;
      for (int i = 0; i < kQuad; ++i) pack.at[i] = codes[i];
      *reinterpret_cast<Pack<typename Out::Stored, kQuad> *>(to) = pack;
      return;
    }
    for (int i = 0; i < kQuad && col + i < cols; ++i) to[i] = codes[i];
  }
};

template <typename Out>
Target<Out> target_of(const octavo_tensor *t) {
  if (t == nullptr) return {};
  using Stored = typename Out::Stored;
  return {static_cast<Stored *>(t->data), t->rows, t->cols, t->stride,
          rows_are_aligned(*t, sizeof(Stored))};
}

/* The code of fl32(value * scale), of a NaN with its sign, which a product need not keep;
 * `keeps_positive`: OCTAVO_QUANTIZE_KEEP_POSITIVE. */
template <typename Out>
__device__ typename Out::Stored code_of(float value, float scale, bool keeps_positive) {
  const typename Out::Stored code = Out::cast(is_nan(value) ? value : value * scale);
  return keeps_positive && value > 0.0f && code == 0 ? typename Out::Stored{1} : code;
}

/* A tile of the input in shared memory, as codes, its columns side by side. */
constexpr int kTile = 64;
template <typename Out>
struct TurnedTile {
  /* A quad more than a column has: neighbours in a row are then in different banks. */
  typename Out::Stored at[kTile][kTile + kQuad];
};

/* The tile whose first element is [first_row, first_col] of the input, complete after a barrier,
 * to out_t, by blocks of 16 x 16 threads. */
template <typename Out>
__device__ void store_turned(const TurnedTile<Out> &tile, const Target<Out> &out_t,
                             int64_t first_row, int64_t first_col) {
  for (int c = static_cast<int>(threadIdx.y); c < kTile; c += 16) {
    const int r = static_cast<int>(threadIdx.x) * kQuad;
    typename Out::Stored codes[kQuad];
    for (int k = 0; k < kQuad; ++k) codes[k] = tile.at[c][r + k];
    out_t.store(first_col + c, first_row + r, codes);
  }
}

}  // namespace octavo::cuda
