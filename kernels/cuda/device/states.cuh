/* kernels/cuda/device/states.cuh: optimizer states of granularity FLAT_256 and EXPANDED_128.
 *
 * A thread has eight elements, so the lanes of a warp share a block of FLAT_256 and half of them a
 * group of EXPANDED_128. The numbers are those of kernels/format/block_state.h.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/packs.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/rounding.cuh"
#include "kernels/format/block_state.h"
#include "octavo/draft/msamp.h"

namespace octavo::cuda {

constexpr int kStateBlock = 256;
constexpr int kExpandedGroup = 128;
constexpr int kExpandedScales = 3; /* floats with each group */
static_assert(kPack * kWarp == kStateBlock);

struct StateScales {
  float *data;
  uint32_t granularity;

  __device__ bool is_expanded() const { return granularity == OCTAVO_EXPANDED_128; }
  __device__ ExpandedGroup group(int64_t index) const {
    const float *s = data + index / kExpandedGroup * kExpandedScales;
    return {s[0], s[1], s[2]};
  }
};

__device__ inline float load_state(const AnyTensor &codes, const StateScales &s, int64_t index) {
  if (s.is_expanded())
    return decode_expanded(s.group(index), static_cast<const uint8_t *>(codes.data)[index]);
  return codes.load(index) * s.data[index / kStateBlock];
}

__device__ inline void merge_range(BlockRange *range, const BlockRange &other) {
  if (other.largest > range->largest) range->largest = other.largest;
  if (other.smallest != 0.0f && (range->smallest == 0.0f || other.smallest < range->smallest))
    range->smallest = other.smallest;
}

/* The range of the values of the block or group that the thread's pack is in; the first n of it
 * exist. All lanes of a warp call it. */
__device__ inline BlockRange range_of(const float (&values)[kPack], int n, bool is_expanded) {
  BlockRange range = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i < n) include_value(&range, values[i]);
  }
  const int lanes = (is_expanded ? kExpandedGroup : kStateBlock) / kPack;
  for (int bits = lanes / 2; bits > 0; bits /= 2) {
    merge_range(&range, {__shfl_xor_sync(kAllLanes, range.largest, bits),
                         __shfl_xor_sync(kAllLanes, range.smallest, bits)});
  }
  return range;
}

/* The values of codes in E4M3 from element `first` on, a multiple of eight, of which n > 0 exist.
 */
__device__ inline void decode_state(const StateScales &s, int64_t first, const RawPack &raw,
                                    Stage *stage, float (&values)[kPack]) {
  if (!s.is_expanded()) {
    const float scale_inv = s.data[first / kStateBlock];
    decode_words<E4m3>(raw, values);
#pragma unroll
    for (int i = 0; i < kPack; ++i) values[i] *= scale_inv;
    return;
  }
  const ExpandedGroup group = s.group(first);
  const uint64_t codes = raw.low.at[0] | static_cast<uint64_t>(raw.low.at[1]) << 32;
#pragma unroll 1
  for (int i = 0; i < kPack; ++i)
    stage->values[i] = decode_expanded(group, static_cast<uint8_t>(codes >> 8 * i));
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] = stage->values[i];
}

/* The codes of n values of a group of EXPANDED_128. */
__device__ __forceinline__ RawPack encode_group(const ExpandedGroup &group, int64_t first,
                                                const float (&values)[kPack], int n,
                                                const PackRounding &rounding, Stage *stage) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) stage->values[i] = values[i];
  uint64_t codes = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    const float value = stage->values[i];
    const uint8_t code =
        rounding.is_stochastic()
            ? encode_expanded_random(group, value,
                                     random_bits(rounding.key, static_cast<uint64_t>(first + i)))
            : encode_expanded(group, value);
    codes |= static_cast<uint64_t>(code) << 8 * i;
  }
  RawPack raw = {};
  raw.low.at[0] = static_cast<uint32_t>(codes);
  raw.low.at[1] = static_cast<uint32_t>(codes >> 32);
  if (!rounding.shrinks()) return raw;
#pragma unroll 1
  for (int i = 0; i < kPack; ++i)
    stage->values[i] = decode_expanded(group, static_cast<uint8_t>(codes >> 8 * i));
  float stored[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) stored[i] = stage->values[i];
  shrink_words<8>(stored, values, rounding, &raw);
  return raw;
}

/* The codes of n values from element `first` on and, from the first lane of a block or group, its
 * scale. All lanes of a warp call it; n is 0 beyond the tensor. */
__device__ __forceinline__ RawPack encode_state(const StateScales &s, int64_t first,
                                                const float (&values)[kPack], int n,
                                                bool keeps_positive, const PackRounding &rounding,
                                                Stage *stage) {
  const BlockRange range = range_of(values, n, s.is_expanded());
  __syncwarp(); /* every lane has read the old scale, which one of them replaces */
  RawPack raw = {};
  if (n == 0) return raw;
  if (s.is_expanded()) {
    const ExpandedGroup group = expanded_group(range);
    raw = encode_group(group, first, values, n, rounding, stage);
    if (first % kExpandedGroup == 0) {
      float *to = s.data + first / kExpandedGroup * kExpandedScales;
      to[0] = group.scale_inv;
      to[1] = group.exponent;
      to[2] = group.center;
    }
  } else {
    const float scale_inv = flat_scale_inv(range);
    float scaled[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) scaled[i] = values[i] / scale_inv;
    if (rounding.is_stochastic())
      encode_random_pack(OCTAVO_E4M3FN, true, scaled, rounding.key, first, &raw);
    else
      cast_words<E4m3>(scaled, &raw);
    if (rounding.shrinks()) shrink_pack(OCTAVO_E4M3FN, scale_inv, values, rounding, &raw);
    if (first % kStateBlock == 0) s.data[first / kStateBlock] = scale_inv;
  }
  if (keeps_positive) raise_words<8>(values, &raw);
  return raw;
}

/* quantize into such a state; both dense, so a row. */
[[maybe_unused]] static __global__ void __launch_bounds__(kThreads)
    quantize_state_kernel(AnyTensor in, const float *factor, AnyTensor out, StateScales scales,
                          bool keeps_positive, bool is_aligned, float *amax, float *nonfinite) {
  __shared__ Stats shared[kWarps];
  __shared__ Stage stages[kThreads];
  Stage *stage = stages + threadIdx.x;
  const int bytes = static_cast<int>(OCTAVO_DTYPE_BITS(in.dtype) / 8);
  Stats stats = {};
  /* Every lane of a warp makes every turn. */
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       block * kStateBlock < in.cols; block += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t first = block * kStateBlock + threadIdx.x % kWarp * kPack;
    const int64_t left = in.cols - first;
    const int n = static_cast<int>(left < 0 ? 0 : left < kPack ? left : kPack);
    const bool is_whole = is_aligned && n == kPack;
    const PackWalk walk = {0, first, in.cols};
    float values[kPack];
    decode_pack(in.dtype,
                is_whole ? load_pack(static_cast<const char *>(in.data) + first * bytes, bytes)
                         : load_each(in.data, bytes, in.cols, walk, n, stage),
                values);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (factor != nullptr) values[i] *= *factor;
      if (i < n) stats.add(values[i]);
    }
    RawPack codes = encode_state(scales, first, values, n, keeps_positive, {}, stage);
    /* Conversions, products and quotients lose the sign of the element that is NaN. */
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (i >= n || !is_nan(values[i])) continue;
      const uint32_t sign = float_bits(in.load(first + i)) < 0 ? 0x80u : 0u;
      uint32_t &word = codes.low.at[i / 4];
      word = (word & ~(0x80u << i % 4 * 8)) | sign << i % 4 * 8;
    }
    if (is_whole)
      store_pack(static_cast<char *>(out.data) + first, 1, codes);
    else
      store_each(out.data, 1, out.cols, walk, n, codes, stage);
  }
  stats = merge_block(stats, shared);
  if (threadIdx.x == 0) publish(stats, amax, nonfinite);
}

}  // namespace octavo::cuda
