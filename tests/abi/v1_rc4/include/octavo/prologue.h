/* octavo/prologue.h: the description of a norm or an activation in front of a linear layer.
 *
 * Kernels compute it (kernels.h); backends fuse it with the cast of the linear's input (fused.h).
 */
#ifndef OCTAVO_PROLOGUE_H
#define OCTAVO_PROLOGUE_H

#include "octavo/tensor.h"

/* Values of octavo_prologue.op. Variances are biased: the mean of squared distances from the mean.
 * rstd = 1 / sqrt(variance + eps). Formulas of norms are literal: each operation is rounded to
 * fp32, from left to right, and so is the number of columns. Activations are the functions of
 * kernels/format/activation.h, which CMake's octavo::format has. A norm needs a column. A sum over
 * a row is 16 sums of the columns with equal remainders modulo 16, in ascending order from 0, added
 * in halves: i and i + 8, then i + 4, i + 2, i + 1. */
enum {
  OCTAVO_PROLOGUE_LAYER_NORM = 1, /* (x - mean) * rstd * gamma + beta, mean and rstd per row */
  OCTAVO_PROLOGUE_RMS_NORM = 2,   /* x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps) */
  OCTAVO_PROLOGUE_GELU = 3,       /* x * Phi(x), computed with erf */
  OCTAVO_PROLOGUE_GELU_TANH = 4,  /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) */
  /* silu(gate) * up, silu(v) = v / (1 + exp(-v)); `in` is [M, 2K]: gate, then up */
  OCTAVO_PROLOGUE_SWIGLU = 5
};

/* An operation on the input of a linear layer before it is quantized. Computed in fp32, on plain
 * tensors. Pointers that an op does not have are null. */
typedef struct octavo_prologue {
  uint32_t size;
  uint32_t kind;              /* OCTAVO_KIND_PROLOGUE */
  uint32_t op;                /* OCTAVO_PROLOGUE_... */
  float eps;                  /* norms only, finite and >= 0; others do not read it */
  const octavo_tensor *in;    /* [M, K]; SWIGLU: [M, 2K] */
  const octavo_tensor *gamma; /* [1, K], norms only, which need it */
  const octavo_tensor *beta;  /* [1, K], LAYER_NORM only; null: nothing is added */
  float *mean; /* f32 [M], written by LAYER_NORM for the host's backward pass; may be null */
  float *rstd; /* f32 [M], written by norms for the same purpose; may be null */
} octavo_prologue;

typedef struct octavo_quantize octavo_quantize; /* kernels.h */

/* Arguments of prologue, which writes the result to `out`, and of prologue_quantize, which
 * quantizes the result directly. There, quantize->in has the shape and dtype of the result, and its
 * data and stride are not read; a NaN is 0x7FC00000; the codes are bit-identical to prologue
 * followed by quantize, of the same kernels. */
typedef struct octavo_prologue_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PROLOGUE_CALL */
  void *stream;
  const octavo_prologue *prologue;
  octavo_tensor *out; /* [M, K], plain; for prologue only */
  const octavo_quantize
      *quantize;   /* for prologue_quantize only; its stream and workspace are not used */
  void *workspace; /* of prologue_quantize: workspace_bytes for this call */
} octavo_prologue_call;

#endif
