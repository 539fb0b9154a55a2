/* kernels/cuda/device/dequantize.cuh: codes or plain values to a plain tensor, with scales of any
 * granularity.
 *
 * NaN comes out as the device's own: the product with a scale has neither sign nor payload there.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/states.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/cuda/device/wide.cuh"
#include "kernels/format/e8m0.h"

namespace octavo::cuda {

/* The multiplier of every element of a tensor. */
struct ScaleInv {
  const void *data; /* null: 1 */
  int64_t stride;
  uint32_t granularity;

  __device__ float at(int64_t row, int64_t col) const {
    const auto *f32 = static_cast<const float *>(data);
    const auto *e8m0 = static_cast<const uint8_t *>(data);
    switch (granularity) {
      case OCTAVO_PER_TENSOR: return f32 == nullptr ? 1.0f : *f32;
      case OCTAVO_PER_ROW: return f32[row * stride];
      case OCTAVO_BLOCK_1X128: return f32[row * stride + (col >> 7)];
      case OCTAVO_BLOCK_128X128: return f32[(row >> 7) * stride + (col >> 7)];
      case OCTAVO_BLOCK_1X32: return decode_e8m0(e8m0[row * stride + (col >> 5)]);
      case OCTAVO_BLOCK_32X32: return decode_e8m0(e8m0[(row >> 5) * stride + (col >> 5)]);
      default: return f32[col >> 8]; /* FLAT_256, of a matrix that is one row */
    }
  }
};

[[maybe_unused]] static __global__ void dequantize_kernel(AnyTensor in, ScaleInv scale,
                                                          AnyTensor out, bool accumulates) {
  const bool is_state =
      scale.granularity == OCTAVO_FLAT_256 || scale.granularity == OCTAVO_EXPANDED_128;
  int64_t index = first_index();
  for (ElementWalk at(in.rows, in.cols); at.is_inside(); at.next(), index += index_step()) {
    float value;
    if (is_state) {
      auto *scales = static_cast<float *>(const_cast<void *>(scale.data));
      value = load_state(in, {scales, scale.granularity}, index);
    } else {
      value = in.load(in.at(at.row, at.col)) * scale.at(at.row, at.col);
    }
    const int64_t to = out.at(at.row, at.col);
    if (accumulates) value = out.load(to) + value;
    out.store(to, value);
  }
}

template <typename Format>
struct WideMatrix {
  typename Format::Stored *data;
  int64_t stride;
};

/* The same for matrices that are wide: a pack of kWide elements has one scale. */
template <typename In, typename Out>
__global__ void __launch_bounds__(kThreads)
    dequantize_wide_kernel(const WideMatrix<In> in, ScaleInv scale, WideMatrix<Out> out,
                           int64_t rows, int64_t cols, bool accumulates) {
  for (int64_t row = first_row(); row < rows; row += row_step()) {
    for (int64_t col = first_index() * kWide; col < cols; col += index_step() * kWide) {
      float values[kWide];
      WidePack<In>::load(in.data + row * in.stride + col).values(values);
      const float factor = scale.at(row, col);
#pragma unroll
      for (float &v : values) v *= factor;
      typename Out::Stored *to = out.data + row * out.stride + col;
      if (accumulates) {
        float before[kWide];
        WidePack<Out>::load(to).values(before);
#pragma unroll
        for (int k = 0; k < kWide; ++k) values[k] = before[k] + values[k];
      }
      WidePack<Out>::rounded(values).store(to);
    }
  }
}

/* quantize_stats: 64 threads, one for each part of the matrix, whose sums are in the order of
 * kernels/cpu/quantize_stats.cpp. Telemetry; few steps take it. */
constexpr int kStatsParts = 64;

struct CastStats {
  int64_t saturated;
  int64_t underflow;
  double signal;
  double noise;
};

__device__ inline float limit_of(float scale_inv, float largest) {
  const double exact = product(static_cast<double>(scale_inv), static_cast<double>(largest));
  const double allowed = product(exact, 1.0 + 0x1p-20);
  return allowed < static_cast<double>(kFloatMax) ? static_cast<float>(allowed) : kFloatMax;
}

struct StatsTargets {
  float *saturated;
  float *underflow;
  float *signal;
  float *noise;
};

[[maybe_unused]] static __global__ void quantize_stats_kernel(AnyTensor in, AnyTensor codes,
                                                              ScaleInv scale, float largest,
                                                              StatsTargets to) {
  __shared__ CastStats parts[kStatsParts];
  constexpr int64_t kSegment = 512;
  const int64_t per_row = (in.cols + kSegment - 1) / kSegment;
  const int64_t segments = in.rows * per_row;
  const int64_t per_part = (segments + kStatsParts - 1) / kStatsParts;
  const int64_t begin = threadIdx.x * per_part;
  const int64_t end = begin + per_part < segments ? begin + per_part : segments;
  CastStats s = {};
  int64_t row = begin < end ? begin / per_row : 0;
  int64_t first = begin < end ? begin % per_row * kSegment : 0;
  for (int64_t segment = begin; segment < end; ++segment) {
    const int64_t last = in.cols < first + kSegment ? in.cols : first + kSegment;
    for (int64_t col = first; col < last; ++col) {
      const float value = in.load(in.at(row, col));
      const float code = codes.load(codes.at(row, col));
      const float scale_inv = scale.at(row, col);
      const float decoded = code * scale_inv;
      const bool finite = is_finite(value) && is_finite(decoded);
      if (!finite || absolute(value) > limit_of(scale_inv, largest)) ++s.saturated;
      if (finite && value != 0.0f && code == 0.0f) ++s.underflow;
      if (!finite) continue;
      const double wanted = static_cast<double>(value);
      const double error = wanted - static_cast<double>(decoded);
      s.signal = product_sum(wanted, wanted, s.signal);
      s.noise = product_sum(error, error, s.noise);
    }
    first += kSegment;
    if (first < in.cols) continue;
    first = 0;
    ++row;
  }
  parts[threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.x != 0) return;
  CastStats total = {};
  for (const CastStats &part : parts) {
    total.saturated += part.saturated;
    total.underflow += part.underflow;
    total.signal += part.signal;
    total.noise += part.noise;
  }
  if (to.saturated != nullptr) atomicAdd(to.saturated, static_cast<float>(total.saturated));
  if (to.underflow != nullptr) atomicAdd(to.underflow, static_cast<float>(total.underflow));
  if (to.signal != nullptr) atomicAdd(to.signal, static_cast<float>(total.signal));
  if (to.noise != nullptr) atomicAdd(to.noise, static_cast<float>(total.noise));
}

}  // namespace octavo::cuda
