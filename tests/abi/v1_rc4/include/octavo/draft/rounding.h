/* octavo/draft/rounding.h: how an Adam step rounds what it stores, and how codes are rounded again.
 *
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 * kernels/format/rounding.h defines each rounding to the last bit.
 */
#ifndef OCTAVO_DRAFT_ROUNDING_H
#define OCTAVO_DRAFT_ROUNDING_H

#include "octavo/draft/adam.h"

/* Besides OCTAVO_ROUND_NEAREST_EVEN: */

/* To nearest even, except where a moment decays, that is, where its gradient is at most half of it:
 * abs(value) <= (1 + beta1) / 2 * abs(old). There, a code that stands for more than the middle
 * between value and old becomes the next one toward zero. So rounding never undoes more than half
 * of a decay, whatever the format and its scales. */
#define OCTAVO_ROUND_SHRINKING 0x8000u

/* Up with the probability (value - low) / (high - low) between the neighbouring codes: exactly for
 * normal codes, in 2^-13 of a step or finer for subnormal ones. Which way depends on the key, the
 * step count, the tensor and the element's number in the order of rows, and on nothing else. */
#define OCTAVO_ROUND_STOCHASTIC 0x8001u

#define OCTAVO_ROUNDING_KERNELS_ID "octavo.kernels.rounding/1"

#define OCTAVO_KIND_ROUNDING_KERNELS 0x8019u
#define OCTAVO_KIND_ADAM_ROUNDED 0x8001u
#define OCTAVO_KIND_COUNT 0x8003u
#define OCTAVO_KIND_ROUND_CODES 0x8005u

/* Arguments of adam_rounded: adam_step with a rounding of each tensor. Tensors in
 * f32 are not rounded. OCTAVO_ADAM_KEEP_POSITIVE is applied after the rounding. */
typedef struct octavo_adam_rounded {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ADAM_ROUNDED */
  void *stream;
  const octavo_adam_step *step; /* its own stream and workspace are ignored */
  void *workspace;              /* workspace_bytes for this call */
  const uint64_t *keys; /* [step->count] in host memory, one for each item; may be null if nothing
                           is stochastic */
  uint32_t weight_rounding;     /* NEAREST_EVEN or STOCHASTIC */
  uint32_t exp_avg_rounding;    /* any */
  uint32_t exp_avg_sq_rounding; /* NEAREST_EVEN or STOCHASTIC */
  uint32_t reserved;
} octavo_adam_rounded;

/* Arguments of round_codes: codes that a quantize has rounded to nearest even are
 * rounded again, as with OCTAVO_ROUND_STOCHASTIC. Each becomes one of fl32(value / scale_inv),
 * saturated, where `scale_inv` stays as it is; NaN becomes 0x7F. So codes stand for the values on
 * average, if none saturates. Which way a code is rounded depends on the key, *count, whether
 * `codes` are transposed, the code's number in the order of rows there, without padding, and the
 * bits of the value in f32: two batches of one step draw different numbers. A hot verb may make
 * this call. */
typedef struct octavo_round_codes {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ROUND_CODES */
  void *stream;
  const octavo_tensor *in;       /* [rows, cols] in f32, bf16 or f16: what was cast */
  const octavo_tensor *codes;    /* [rows, cols] or, transposed, [cols, rows] in E4M3FN or E5M2;
                                    what is beyond `in` is padding and stays */
  const octavo_scale *scale_inv; /* of codes: per tensor, of rows, or of blocks of 32 or 128 */
  const float *count;            /* the number of the step; null means 0 */
  uint64_t key;
  uint32_t is_transposed; /* 0 or 1 */
  uint32_t reserved;
} octavo_round_codes;

/* Arguments of count: *count becomes *count + 1, or 0 after 2^24 - 1, since f32
 * holds no further whole numbers. It stays where *skip is not 0. */
typedef struct octavo_count {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COUNT */
  void *stream;
  float *count;
  const float *skip; /* may be null */
} octavo_count;

/* What octavo_kernels.get_extension returns for OCTAVO_ROUNDING_KERNELS_ID. Required: every
 * function. */
typedef struct octavo_rounding_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ROUNDING_KERNELS */
  octavo_status (*adam_rounded)(void *ctx, const octavo_adam_rounded *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*round_codes)(void *ctx,
                               const octavo_round_codes *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*count)(void *ctx, const octavo_count *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_rounding_kernels;

#endif
