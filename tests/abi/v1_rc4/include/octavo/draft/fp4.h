/* octavo/draft/fp4.h: NVFP4: codes of four bits with two levels of scales.
 *
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 * Transformer
 * Engine's recipe NVFP4BlockScaling and "Pretraining Large Language Models with NVFP4"
 * (arXiv 2509.25149) describe the format; kernels/format/nvfp4.h defines it to the last bit.
 *
 * quantize, dequantize and gemm take it by the dtype, the granularities and the rule below, where
 * `ability` accepts them. Codes are rows of a multiple of 16 elements, with a stride that is even.
 */
#ifndef OCTAVO_DRAFT_FP4_H
#define OCTAVO_DRAFT_FP4_H

#include "octavo/draft/rounding.h"

/* A dtype, DLPack's float4_e2m1fn: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Two codes in a
 * byte, the first one in its low half. */
#define OCTAVO_E2M1 0x0411u

/* Granularities of codes in OCTAVO_E2M1: one scale in E4M3FN for 16 elements of a row, or for 16 x
 * 16 elements. octavo_scale.second is the amax of the tensor:
 *   value = code * scale * (*second / 2688), with 2688 = 6 * 448
 * gemm sums blocks as with other block granularities, but by the scales in E4M3FN alone, and
 * multiplies the sum once by fl32(fl32(a.second * b.second) / fl32(2688 * 2688)). */
#define OCTAVO_BLOCK_1X16 0x8001u
#define OCTAVO_BLOCK_16X16 0x8002u

/* The rule of an octavo_quantize with these granularities; format_max and eps are ignored. The amax
 * of a tensor ignores NaN. A block with NaN in it has NaN as its scale and codes of 0. Inf becomes
 * 2688; if the amax is Inf, *second is 2688. */
#define OCTAVO_RULE_NVFP4 0x8001u

/* Flags of octavo_quantize_fp4. */
enum {
  OCTAVO_FP4_HADAMARD = 1,  /* out_t is made of `in` transformed along its columns: every 16 rows by
                               the same orthogonal matrix, which leaves in^T in as it was */
  OCTAVO_FP4_STOCHASTIC = 2 /* codes are rounded as with OCTAVO_ROUND_STOCHASTIC */
};

#define OCTAVO_FP4_KERNELS_ID "octavo.kernels.fp4/1"

#define OCTAVO_KIND_FP4_KERNELS 0x801Bu
#define OCTAVO_KIND_QUANTIZE_FP4 0x8002u

/* Arguments of quantize_fp4: a quantize to OCTAVO_E2M1 with more ways to do it.
 * Which way a code is rounded depends on the key, *count, the amax of `in`, whether it is of out_t,
 * and its number in the order of rows there, without padding. A hot verb may make this call. */
typedef struct octavo_quantize_fp4 {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_QUANTIZE_FP4 */
  void *stream;
  const octavo_quantize *quantize; /* its own stream and workspace are ignored */
  const float *count;              /* the number of the step; null means 0 */
  uint64_t key;
  uint32_t flags; /* OCTAVO_FP4_... */
  uint32_t reserved;
} octavo_quantize_fp4;

/* What octavo_kernels.get_extension returns for OCTAVO_FP4_KERNELS_ID. Required: every
 * function. */
typedef struct octavo_fp4_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_FP4_KERNELS */
  octavo_status (*quantize_fp4)(void *ctx,
                                const octavo_quantize_fp4 *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
} octavo_fp4_kernels;

#endif
