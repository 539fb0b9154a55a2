/* octavo/draft/grouped.h: interface "octavo.grouped/1", several linear layers in one call.
 *
 * Optional. Provisional: the id changes when anything of it changes. For the experts of a mixture:
 * linears with weights of one shape, each with some of the rows of one x. Rows are sorted by
 * linear: linear i of the list has the rows offsets[i] up to, but not including, offsets[i + 1],
 * which may be none. A call leaves the same bits in y, dx, dw, db and the slots as one call of
 * octavo_backend for each linear, in the order of the list.
 */
#ifndef OCTAVO_DRAFT_GROUPED_H
#define OCTAVO_DRAFT_GROUPED_H

#include "octavo/backend.h"

#define OCTAVO_GROUPED_ID "octavo.grouped/1"

#define OCTAVO_KIND_GROUPED_PLAN 0x8006u
#define OCTAVO_KIND_GROUPED_FORWARD_CALL 0x8007u
#define OCTAVO_KIND_GROUPED_BACKWARD_CALL 0x8008u
#define OCTAVO_KIND_GROUPED 0x8009u

/* What the host must provide for the calls of a list of linears. M is the number of rows of all of
 * them together, however they are divided. */
typedef struct octavo_grouped_plan {
  uint32_t size;
  uint32_t kind;  /* OCTAVO_KIND_GROUPED_PLAN */
  uint32_t flags; /* OCTAVO_LINEAR_NEEDS_X, if it is in the plan of any of the linears */
  uint32_t reserved;
  octavo_extent saved;
  octavo_extent forward_workspace;
  octavo_extent backward_workspace;
} octavo_grouped_plan;

/* Arguments of forward. */
typedef struct octavo_grouped_forward_call {
  uint32_t size;
  uint32_t kind;           /* OCTAVO_KIND_GROUPED_FORWARD_CALL */
  const uint32_t *linears; /* ids, [count]; each at most once */
  const int64_t *offsets;  /* [count + 1], in the host's memory: from 0 to M, never decreasing */
  uint32_t count;          /* >= 1 */
  uint32_t flags;          /* OCTAVO_FORWARD_... */
  void *stream;
  const octavo_tensor *x;    /* [M, K] */
  octavo_tensor *y;          /* [M, N], overwritten; must not overlap x */
  const octavo_tensor *bias; /* [count, N], row i for linear i; or null */
  void *const *const *slots; /* the list of each linear, [count] */
  void *saved;               /* plan.saved bytes; null if no backward follows */
  void *workspace;           /* plan.forward_workspace bytes */
} octavo_grouped_forward_call;

/* Arguments of backward. An output that is null is not computed. */
typedef struct octavo_grouped_backward_call {
  uint32_t size;
  uint32_t kind;           /* OCTAVO_KIND_GROUPED_BACKWARD_CALL */
  const uint32_t *linears; /* linears, offsets and count as in the forward call */
  const int64_t *offsets;
  uint32_t count;
  uint32_t flags; /* OCTAVO_BACKWARD_... */
  void *stream;
  const octavo_tensor *dy;   /* [M, N] */
  const octavo_tensor *x;    /* [M, K] with OCTAVO_LINEAR_NEEDS_X, otherwise ignored */
  octavo_tensor *dx;         /* [M, K], overwritten */
  octavo_tensor *const *dw;  /* null, or [count]: null or [N, K] of each linear, as in
                                linear_backward */
  octavo_tensor *db;         /* [count, N], row i for linear i */
  void *const *const *slots; /* the list of each linear, [count] */
  const void *saved;         /* as written by forward; not modified */
  void *workspace;           /* plan.backward_workspace bytes */
} octavo_grouped_backward_call;

/* Required: every function. */
typedef struct octavo_grouped {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GROUPED */
  /* Fills in the plan of a list of sealed linears. Returns OCTAVO_INVALID if their weights differ
   * in shape or if one stands there twice, and OCTAVO_UNSUPPORTED if they cannot be grouped. */
  octavo_status (*plan)(const octavo_session *s, const uint32_t *linears, uint32_t count,
                        octavo_grouped_plan *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*forward)(const octavo_session *s, const octavo_grouped_forward_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*backward)(const octavo_session *s, const octavo_grouped_backward_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
} octavo_grouped;

#endif
