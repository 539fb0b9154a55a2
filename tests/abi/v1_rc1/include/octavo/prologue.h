/* octavo/prologue.h: a norm or an activation in front of a linear layer, as data.
 *
 * Kernels compute it (kernels.h), backends fuse it with the cast of a linear's input (fused.h).
 */
#ifndef OCTAVO_PROLOGUE_H
#define OCTAVO_PROLOGUE_H

#include "octavo/tensor.h"

/* octavo_prologue.op */
enum {
  OCTAVO_PROLOGUE_LAYER_NORM = 1, /* (x - mean) * rstd * gamma + beta, each row by its own */
  OCTAVO_PROLOGUE_RMS_NORM = 2,   /* x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps) */
  OCTAVO_PROLOGUE_GELU = 3,       /* x * Phi(x), by erf */
  OCTAVO_PROLOGUE_GELU_TANH = 4,  /* its tanh form */
  OCTAVO_PROLOGUE_SWIGLU = 5      /* silu(gate) * up; in is [M, 2K]: gate, then up */
};

/* What happens to x before a linear layer quantizes it. Values are computed in fp32. */
typedef struct octavo_prologue {
  uint32_t size;
  uint32_t kind;              /* OCTAVO_KIND_PROLOGUE */
  uint32_t op;                /* OCTAVO_PROLOGUE_... */
  float eps;                  /* of norms */
  const octavo_tensor *in;    /* [M, K], SWIGLU: [M, 2K] */
  const octavo_tensor *gamma; /* [1, K], norms */
  const octavo_tensor *beta;  /* [1, K], LAYER_NORM; or null */
  float *mean; /* f32 [M], written by LAYER_NORM for the host's backward pass; or null */
  float *rstd; /* f32 [M], written by norms, likewise; or null */
} octavo_prologue;

#endif
