/* kernels/cuda/device/states.cuh: optimizer states of granularity FLAT_256 and EXPANDED_128.
 *
 * A block of 256 threads takes 256 elements, one each: one block of FLAT_256 or two groups of
 * EXPANDED_128, whose numbers are those of kernels/format/block_state.h.
 */
#pragma once

#include "kernels/cuda/device/any_tensor.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/format/block_state.h"

namespace octavo::cuda {

constexpr int kStateBlock = 256;
constexpr int kExpandedGroup = 128;
constexpr int kExpandedScales = 3; /* floats with each group */

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

/* The range of the values of the block or group that the thread's element is in. `shared` holds one
 * for each warp; two barriers. */
__device__ inline BlockRange range_of(float value, bool exists, bool is_expanded,
                                      BlockRange (&shared)[kWarps]) {
  BlockRange range = {0.0f, 0.0f};
  if (exists) include_value(&range, value);
  for (int bits = static_cast<int>(kWarp) / 2; bits > 0; bits /= 2) {
    merge_range(&range, {__shfl_xor_sync(kAllLanes, range.largest, bits),
                         __shfl_xor_sync(kAllLanes, range.smallest, bits)});
  }
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  if (threadIdx.x % kWarp == 0) shared[warp] = range;
  __syncthreads();
  const int count = is_expanded ? kWarps / 2 : kWarps;
  const int first = warp / count * count;
  range = shared[first];
  for (int i = 1; i < count; ++i) merge_range(&range, shared[first + i]);
  __syncthreads();
  return range;
}

/* The code of the thread's value and, from the first thread of a block or group, its scale. All
 * threads of the block call it; `exists` is false beyond the tensor. */
__device__ inline void store_state(const AnyTensor &codes, const StateScales &s, int64_t index,
                                   float value, bool exists, bool keeps_positive,
                                   BlockRange (&shared)[kWarps]) {
  const BlockRange range = range_of(value, exists, s.is_expanded(), shared);
  if (!exists) return;
  uint8_t code;
  if (s.is_expanded()) {
    const ExpandedGroup g = expanded_group(range);
    code = encode_expanded(g, value);
    if (threadIdx.x % kExpandedGroup == 0) {
      float *to = s.data + index / kExpandedGroup * kExpandedScales;
      to[0] = g.scale_inv;
      to[1] = g.exponent;
      to[2] = g.center;
    }
  } else {
    const float scale_inv = flat_scale_inv(range);
    code = encode_flat(scale_inv, value);
    if (threadIdx.x == 0) s.data[index / kStateBlock] = scale_inv;
  }
  if (keeps_positive && value > 0.0f && code == 0) code = 1;
  static_cast<uint8_t *>(codes.data)[index] = code;
}

/* quantize into such a state; both dense. */
[[maybe_unused]] static __global__ void __launch_bounds__(kStateBlock)
    quantize_state_kernel(AnyTensor in, const float *factor, AnyTensor out, StateScales scales,
                          bool keeps_positive, float *amax, float *nonfinite) {
  __shared__ Stats shared[kWarps];
  __shared__ BlockRange ranges[kWarps];
  const int64_t count = in.rows * in.cols;
  const int64_t blocks = (count + kStateBlock - 1) / kStateBlock;
  Stats stats = {};
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t index = block * kStateBlock + threadIdx.x;
    const bool exists = index < count;
    float value = exists ? in.load(index) : 0.0f;
    if (factor != nullptr) value *= *factor;
    if (exists) stats.add(value);
    store_state(out, scales, index, value, exists, keeps_positive, ranges);
  }
  stats = merge_block(stats, shared);
  if (threadIdx.x == 0) publish(stats, amax, nonfinite);
}

}  // namespace octavo::cuda
