/* octavo/draft/one_pass.h: an Adam step whose new scales are known before its new values.
 *
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 *
 * adam_step takes a scale from the largest new value, so it computes all values twice. Here a scale
 * comes from an upper bound of the new values, which the largest old values and the largest
 * gradient give: kernels/format/one_pass.h has the formulas, docs/numerics.md derives them. No
 * value saturates. What it costs is range: a scale may be smaller than that of adam_step.
 */
#ifndef OCTAVO_DRAFT_ONE_PASS_H
#define OCTAVO_DRAFT_ONE_PASS_H

#include "octavo/draft/rounding.h"

#define OCTAVO_ONE_PASS_KERNELS_ID "octavo.kernels.one_pass/1"

#define OCTAVO_KIND_ONE_PASS_KERNELS 0x801Au
#define OCTAVO_KIND_ADAM_ONE_PASS 0x8004u

/* The elements of octavo_adam_one_pass.amax[i], about what is stored in codes with one scale. An
 * amax ignores NaN and has the unit of its tensor; 0 stands for unknown. */
enum {
  OCTAVO_AMAX_WEIGHT = 0,
  OCTAVO_AMAX_EXP_AVG = 1,
  OCTAVO_AMAX_EXP_AVG_SQ = 2,
  OCTAVO_AMAX_IRREGULAR = 3, /* 1: some value is Inf or NaN, or a second moment has a sign */
  OCTAVO_AMAX_COUNT = 4
};

/* Arguments of adam_one_pass: adam_rounded, but for the new scales of tensors with
 * one scale and for weights with one: their change is limited, see adam_ratio_limit of
 * kernels/format/one_pass.h. Items without such a scale are stepped as by adam_rounded. */
typedef struct octavo_adam_one_pass {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ADAM_ONE_PASS */
  void *stream;
  const octavo_adam_rounded *rounded; /* its own stream and workspace are ignored */
  void *workspace;                    /* workspace_bytes for this call */
  /* [count of items] in host memory: device f32[OCTAVO_AMAX_COUNT] of each item, which the caller
   * owns and keeps between steps; null where the item has no tensor with one scale. The call reads
   * and writes them, unless it skips. They follow from the codes and scales alone: where one is 0
   * the call measures the tensor itself, with equal results. Whoever changes codes or scales by
   * another call sets all of the item's to 0 before the next step; with stale ones values may
   * saturate. */
  float *const *amax;
} octavo_adam_one_pass;

/* What octavo_kernels.get_extension returns for OCTAVO_ONE_PASS_KERNELS_ID. Required: every
 * function. */
typedef struct octavo_one_pass_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ONE_PASS_KERNELS */
  octavo_status (*adam_one_pass)(void *ctx, const octavo_adam_one_pass *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_one_pass_kernels;

#endif
