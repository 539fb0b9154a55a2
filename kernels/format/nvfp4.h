/* kernels/format/nvfp4.h: NVFP4, E2M1 codes whose scales are E4M3 codes, see octavo/draft/fp4.h.
 *
 * Values and scales are those of NVFP4QuantizerRef, the reference in Python of Transformer Engine
 * (pytorch/custom_recipes/reference_nvfp4.py at revision d0067d0), which its device code is tested
 * against bit for bit. The formulas are of section 4 and appendix B of arXiv 2509.25149.
 */
#pragma once

#include "kernels/format/float8.h"
#include "kernels/format/rounding.h"
#include "kernels/format/scale_rules.h"

namespace octavo {

constexpr int32_t kLargestE2m1 = 0x40C00000; /* 6 */

/* What a code is rounded from: the magnitude, at most 6, as bits, and the sign's place in the code.
 * NaN gives 0: its scale is NaN, too. -0 is code 0, as in the reference. */
struct E2m1Source {
  int32_t magnitude;
  int32_t sign;
};
OCTAVO_HOST_DEVICE static inline E2m1Source e2m1_source(float value) {
  const int32_t bits = float_bits(value);
  const int32_t found = bits & kMagnitudeMask;
  const int32_t magnitude = found > kInfinityBits ? 0 : found;
  return {magnitude < kLargestE2m1 ? magnitude : kLargestE2m1,
          magnitude > 0 ? (bits >> 28) & 8 : 0};
}

/* To nearest even. */
OCTAVO_HOST_DEVICE static inline uint8_t encode_e2m1(float value) {
  const E2m1Source from = e2m1_source(value);
  return static_cast<uint8_t>(from.sign | round_to_code<1, 1>(from.magnitude));
}

/* Up with the probability (value - low) / (high - low), by random bits. */
OCTAVO_HOST_DEVICE static inline uint8_t encode_e2m1_random(float value, uint32_t random) {
  const E2m1Source from = e2m1_source(value);
  return static_cast<uint8_t>(from.sign | round_by_bits<1, 1>(from.magnitude, random));
}

/* The low four bits of `code`. */
OCTAVO_HOST_DEVICE static inline float decode_e2m1(uint8_t code) {
  const int32_t sign = static_cast<int32_t>(static_cast<uint32_t>(code & 8) << 28);
  return bits_float(sign | code_to_bits<1, 1>(code & 7));
}

/* What all blocks of a tensor share. */
struct Nvfp4Tensor {
  float block_factor; /* of a block's amax, which gives its scale in E4M3 */
  float decode;       /* of a scale in E4M3, which gives what a code is multiplied by */
};

/* encode = 2688 / amax, at most FLT_MAX, and 1 for an infinite amax. 1 / 6 is multiplied into it
 * before a block's amax is: both products are rounded. */
OCTAVO_HOST_DEVICE static inline Nvfp4Tensor nvfp4_tensor(float amax) {
  const float quotient = limit_infinity(kMaxE4m3 * 6.0f / amax, kFloatMax);
  const float encode = is_infinite(amax) ? 1.0f : quotient;
  return {encode * (1.0f / 6.0f), 1.0f / encode};
}

/* What accompanies the codes as the amax: where it is infinite, that of an `encode` of 1. */
OCTAVO_HOST_DEVICE static inline float nvfp4_second(float amax) {
  return limit_infinity(amax, kMaxE4m3 * 6.0f);
}

/* The scale of a block, an E4M3 code; for amax >= 0. NaN, of a block with NaN in it, is kept. */
OCTAVO_HOST_DEVICE static inline uint8_t nvfp4_block_scale(const Nvfp4Tensor &tensor, float amax) {
  return static_cast<uint8_t>(encode_e4m3(amax * tensor.block_factor) & 0x7F);
}

/* What the elements of a block are multiplied by before their cast: the inverse of the rounded
 * scale. */
OCTAVO_HOST_DEVICE static inline float nvfp4_encode_factor(const Nvfp4Tensor &tensor,
                                                           uint8_t scale) {
  return limit_infinity(1.0f / (decode_e4m3(scale) * tensor.decode), kFloatMax);
}

/* What a code is multiplied by, as in Transformer Engine's kernel (dequantize_nvfp4.cuh). */
OCTAVO_HOST_DEVICE static inline float nvfp4_decode_factor(float scale, float amax) {
  return scale * amax * (1.0f / (kMaxE4m3 * 6.0f));
}

/* What a product of two operands is multiplied by; a and b are the amax of their tensors. */
OCTAVO_HOST_DEVICE static inline float nvfp4_product_factor(float a, float b) {
  return a * b / (kMaxE4m3 * kMaxE4m3 * 36.0f);
}

/* ---- The random Hadamard transform. ---- */

constexpr int kHadamard = 16;
/* Which of 16 elements change their sign before the transform. "Random" is the name of the method:
 * the reference has these signs in every call (get_wgrad_sign_vector). */
constexpr uint32_t kHadamardSigns = 0xD7E8;

/* x becomes x S H / 4 for each of `count` columns of values [16][stride]: S is diagonal, the signs
 * above; H is Sylvester's Hadamard matrix. Sums are rounded in the order of the steps 1, 2, 4, 8.
 * The reference leaves the order to its matrix product, so both are equal where fp32 rounds none of
 * the sums. */
OCTAVO_HOST_DEVICE static inline void hadamard_columns(float *values, int64_t stride,
                                                       int64_t count) {
  for (int i = 0; i < kHadamard; ++i) {
    const float factor = (kHadamardSigns >> i & 1) != 0 ? -0.25f : 0.25f;
    for (int64_t col = 0; col < count; ++col) values[i * stride + col] *= factor;
  }
  for (int step = 1; step < kHadamard; step *= 2) {
    for (int i = 0; i < kHadamard; ++i) {
      if ((i & step) != 0) continue;
      float *low = values + i * stride;
      float *high = values + (i + step) * stride;
      for (int64_t col = 0; col < count; ++col) {
        const float sum = low[col] + high[col];
        high[col] = low[col] - high[col];
        low[col] = sum;
      }
    }
  }
}

}  // namespace octavo
