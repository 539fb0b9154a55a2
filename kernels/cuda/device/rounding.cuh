/* kernels/cuda/device/rounding.cuh: packs of codes that are not rounded to nearest even, see
 * kernels/format/rounding.h.
 *
 * Element by element, with every index known when the code is compiled.
 */
#pragma once

#include "kernels/cuda/device/packs.cuh"
#include "kernels/format/rounding.h"
#include "octavo/draft/rounding.h"

namespace octavo::cuda {

/* How the codes of one tensor are rounded. */
struct PackRounding {
  uint32_t how;     /* OCTAVO_ROUND_... */
  RandomKey key;    /* STOCHASTIC */
  const float *old; /* SHRINKING: the old values of the pack */
  float limit;      /* the same: decay_limit */

  __device__ bool is_stochastic() const { return how == OCTAVO_ROUND_STOCHASTIC; }
  __device__ bool shrinks() const { return how == OCTAVO_ROUND_SHRINKING; }
};

template <int kBits>
__device__ __forceinline__ void put_code(RawPack *raw, int i, uint32_t code) {
  raw->low.at[i * kBits / 32] |= code << i * kBits % 32;
}

/* Of scaled values from element `first` on, to a dtype of 8 or 16 bits. */
__device__ __forceinline__ void encode_random_pack(uint32_t dtype, bool is_scaled,
                                                   const float (&values)[kPack], RandomKey key,
                                                   int64_t first, RawPack *raw) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const uint32_t random = random_bits(key, static_cast<uint64_t>(first + i));
    const float value = values[i];
    if (dtype == OCTAVO_E4M3FN)
      put_code<8>(raw, i, encode_e4m3_random(value, random));
    else if (dtype == OCTAVO_E5M2)
      put_code<8>(raw, i, encode_e5m2_random(value, random));
    else if (dtype == OCTAVO_BF16)
      put_code<16>(raw, i, encode_bf16_random(value, random));
    else
      put_code<16>(raw, i,
                   is_scaled ? encode_f16_random<kSaturatedF16>(value, random)
                             : encode_f16_random<kPlainF16>(value, random));
  }
}

/* One code less where what it stands for undoes a decay; the code is at least 1 there. */
template <int kBits>
__device__ __forceinline__ void shrink_words(const float (&stored)[kPack],
                                             const float (&values)[kPack],
                                             const PackRounding &rounding, RawPack *raw) {
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (undoes_decay(stored[i], values[i], rounding.old[i], rounding.limit))
      raw->low.at[i * kBits / 32] -= 1u << i * kBits % 32;
  }
}

/* Codes of values with one scale, which were rounded to nearest even. */
__device__ __forceinline__ void shrink_pack(uint32_t dtype, float scale_inv,
                                            const float (&values)[kPack],
                                            const PackRounding &rounding, RawPack *raw) {
  float stored[kPack];
  decode_pack(dtype, *raw, stored);
#pragma unroll
  for (int i = 0; i < kPack; ++i) stored[i] *= scale_inv;
  OCTAVO_DTYPE_BITS(dtype) == 8 ? shrink_words<8>(stored, values, rounding, raw)
                                : shrink_words<16>(stored, values, rounding, raw);
}

}  // namespace octavo::cuda
