/* octavo/fused.h: interface "octavo.fused/1", a norm or an activation fused into a linear layer.
 *
 * Optional; presence is the capability. What lies before a linear layer (octavo_prologue) is
 * computed where its result is quantized, so it is never written in the host's precision. The
 * gradient of the prologue stays with the host, which needs x, and of norms mean and rstd, but not
 * the prologue's result: linear_backward gives it the gradient of that as dx.
 */
#ifndef OCTAVO_FUSED_H
#define OCTAVO_FUSED_H

#include "octavo/kernels.h"

#define OCTAVO_FUSED_ID "octavo.fused/1"

/* linear_forward with x = prologue(...): the same bits as apply into a tensor of x's dtype and then
 * linear_forward. */
typedef struct octavo_fused_forward_call {
  uint32_t size;
  uint32_t kind;                      /* OCTAVO_KIND_FUSED_FORWARD_CALL */
  const octavo_forward_call *forward; /* its x has a shape and a dtype, but no data; its workspace
                                         has the bytes that `workspace` states */
  const octavo_prologue *prologue;
} octavo_fused_forward_call;

typedef struct octavo_fused {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_FUSED */
  /* Bytes of the forward call's workspace, by M, for any prologue. OCTAVO_UNSUPPORTED: this linear
   * needs x in backward (OCTAVO_LINEAR_NEEDS_X), so it cannot be fused. */
  octavo_status (*workspace)(const octavo_session *s, uint32_t linear,
                             octavo_extent *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*linear_forward)(const octavo_session *s, const octavo_fused_forward_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  /* The prologue alone, into call->out; needs no workspace. */
  octavo_status (*apply)(const octavo_session *s,
                         const octavo_prologue_call *call) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
} octavo_fused;

#endif
