/* octavo/draft/adam.h: kernels of an Adam step on quantized states.
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 * Adam steps are exact to the bit; kernels/format defines them.
 */
#ifndef OCTAVO_DRAFT_ADAM_H
#define OCTAVO_DRAFT_ADAM_H

#include "octavo/kernels.h"

#define OCTAVO_ADAM_KERNELS_ID "octavo.kernels.adam/2"

#define OCTAVO_KIND_ADAM_STEP 0x8013u
#define OCTAVO_KIND_GRADIENT_SCALE 0x8014u
#define OCTAVO_KIND_ADAM_KERNELS 0x801Cu

/* A parameter of an Adam step. A tensor whose scale_inv is null is plain. Frozen. */
typedef struct octavo_adam_item {
  octavo_tensor weight;
  octavo_tensor gradient;
  octavo_tensor exp_avg;
  octavo_tensor exp_avg_sq;
  float *weight_scale_inv;
  const float *gradient_scale_inv;
  float *exp_avg_scale_inv;
  float *exp_avg_sq_scale_inv;
  int32_t *step;      /* incremented unless the step is skipped */
  const float *hyper; /* f32[OCTAVO_HYPER_COUNT], see draft/optimizer.h */
} octavo_adam_item;

/* Values of octavo_adam_step.decay_mode. */
enum {
  OCTAVO_DECAY_DECOUPLED = 0, /* AdamW: w *= 1 - lr * weight_decay, before the update */
  OCTAVO_DECAY_L2 = 1         /* Adam: weight_decay * w is added to the gradient */
};
/* Flags of octavo_adam_step. */
enum {
  OCTAVO_ADAM_KEEP_POSITIVE = 1 /* a positive exp_avg_sq is stored as at least the smallest positive
                                   code; with code 0, the next update would be m / eps */
};

/* Arguments of adam_step. */
typedef struct octavo_adam_step {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ADAM_STEP */
  void *stream;
  const octavo_adam_item *items;
  uint64_t count;
  const float *skip; /* if *skip is nonzero, nothing changes; may be null */
  void *workspace;
  uint32_t rule;       /* for the new per-tensor scales */
  uint32_t decay_mode; /* OCTAVO_DECAY_... */
  /* The granularity of exp_avg_scale_inv and exp_avg_sq_scale_inv, if not null. PER_TENSOR: a scale
   * by `rule`. FLAT_256: E4M3 codes, scale_inv = fl32(max(amax, 1e-12) / 448) per block, code of
   * fl32(value / scale_inv), as torchao's low-bit optimizers. */
  uint32_t state_granularity;
  uint32_t flags; /* OCTAVO_ADAM_... */
} octavo_adam_step;

/* Arguments of gradient_scale, which computes on the device what an optimizer step multiplies the
 * gradients by:
 *   norm = fl32(factor * sqrt(f64 sum of sum[0 .. sum_count) in ascending order))
 *   skip = 1 if nonfinite is 1 or norm is Inf or NaN, else 0
 *   grad_scale[i] = factor * min(1, max_norm / (norm + 1e-6)), as torch's clip_grad_norm_
 * A max_norm of 0 disables clipping, and so does a skip: grad_scale[i] = factor. */
typedef struct octavo_gradient_scale {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GRADIENT_SCALE */
  void *stream;
  const float *sum; /* sums of squares of gradients, f32 [sum_count] */
  uint64_t sum_count;
  const float *nonfinite;   /* may be null */
  float *norm;              /* may be null */
  float *skip;              /* may be null */
  float *const *grad_scale; /* [count] device addresses; the array itself is in host memory */
  uint64_t count;
  float factor; /* 1 / loss scale, 1 / ranks; 1 if none */
  float max_norm;
} octavo_gradient_scale;

/* What octavo_kernels.get_extension returns for OCTAVO_ADAM_KERNELS_ID. Required: every
 * function. */
typedef struct octavo_adam_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ADAM_KERNELS */
  octavo_status (*adam_step)(void *ctx,
                             const octavo_adam_step *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*gradient_scale)(void *ctx, const octavo_gradient_scale *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* *out = fl32(*out + fl32(squares of `in`)); `accumulate` is ignored. Workspace as for sum_rows,
   * whose call struct this is. */
  octavo_status (*sum_of_squares)(void *ctx,
                                  const octavo_sum *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_adam_kernels;

#endif
