/* octavo/fused.h: interface "octavo.fused/1", a norm or an activation fused into a linear layer.
 *
 * Optional. The operation in front of a linear layer (octavo_prologue) is computed while its result
 * is quantized, so that the result is never written in the host's precision. The host computes the
 * backward pass of the prologue itself, from the dx of linear_backward, the prologue's input and,
 * for norms, mean and rstd. It does not need the prologue's result. octavo_kernels.prologue
 * computes one apart from a linear.
 */
#ifndef OCTAVO_FUSED_H
#define OCTAVO_FUSED_H

#include "octavo/backend.h"
#include "octavo/prologue.h"

#define OCTAVO_FUSED_ID "octavo.fused/1"

/* Arguments of linear_forward with x = prologue(...). Gives the same bits as `prologue` of the
 * kernels into a tensor of x's dtype followed by octavo_backend.linear_forward. */
typedef struct octavo_fused_forward_call {
  uint32_t size;
  uint32_t kind;                      /* OCTAVO_KIND_FUSED_FORWARD_CALL */
  const octavo_forward_call *forward; /* its x has a shape and a dtype but null data, and a stride
                                         that is not read; its workspace has the size given by
                                         `workspace` below; all else is as in linear_forward */
  const octavo_prologue *prologue;
} octavo_fused_forward_call;

/* Required: every function. */
typedef struct octavo_fused {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_FUSED */
  /* The workspace size of a fused forward call for M rows, with any prologue and dtype. The answer
   * OCTAVO_UNSUPPORTED, without a diagnostic, has two reasons: backward needs x
   * (OCTAVO_LINEAR_NEEDS_X), or the kernels of the session decline one of the calls. */
  octavo_status (*workspace)(const octavo_session *s, uint32_t linear,
                             octavo_extent *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*linear_forward)(const octavo_session *s, const octavo_fused_forward_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
} octavo_fused;

#endif
