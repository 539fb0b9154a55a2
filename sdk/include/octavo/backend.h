/* octavo/backend.h: interface "octavo.backend/1", an FP8 training method.
 *
 *   list_options -> check_session -> open_session
 *                                        |
 *      +------------------------------ OPEN <-----------------------------+
 *      | add_parameter, add_linear (any order, weight before its linear)  |
 *      +------------> seal -> SEALED ------- add_*, seal again -----------+
 *                               |
 *   one step:  quantize_weight   each parameter whose weight changed, also after load
 *              { linear_forward -> linear_backward }*   any order, batch sizes, threads, repetition
 *              host: combine REDUCE slots over ranks; gradients.h; optimizer.h
 *              end_step          once; the only verb that changes scales and clears accumulators
 *   close_session (any state; no call may be in flight)
 *
 * A session is immutable after seal: a hot verb depends on nothing but its arguments and the
 * options. `scale` changes in end_step only, so a recomputed forward equals the first bit for bit.
 * A setup verb that fails leaves the session as it was. When a step or hot verb fails, outputs and
 * accumulators of that call are undefined, everything else is untouched and the session stays
 * usable. A verb whose list holds no slot with access for it need not be called.
 */
#ifndef OCTAVO_BACKEND_H
#define OCTAVO_BACKEND_H

#include "octavo/host.h"
#include "octavo/slots.h"

#define OCTAVO_BACKEND_ID "octavo.backend/1"

typedef struct octavo_kernels octavo_kernels;
typedef struct octavo_kernels_caps octavo_kernels_caps;
typedef struct octavo_session octavo_session; /* opaque; each backend defines its own */

/* One option of the backend, as it stands in the config table [fp8.<id>]. liboctavo checks type,
 * range and choice, so a backend may trust them. */
typedef struct octavo_option {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTION */
  octavo_str name;
  octavo_str help;      /* one sentence, with the unit */
  octavo_value initial; /* the default; its type is the option's type */
  octavo_value low;     /* inclusive bounds of INT and REAL; type 0: unbounded */
  octavo_value high;
  const octavo_str *choices; /* TEXT: the legal values; null: any text */
  uint64_t choice_count;
} octavo_option;

typedef struct octavo_option_sink {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTION_SINK */
  void *ctx;
  octavo_status (*option)(void *ctx, const octavo_option *o);
} octavo_option_sink;

/* Frozen. */
typedef struct octavo_option_value {
  octavo_str name;
  octavo_value value;
} octavo_option_value;

enum {
  /* The host demands equal bits for equal inputs, and the kernels promise them. A backend that
   * itself could break the promise declines in check_session. */
  OCTAVO_SESSION_DETERMINISTIC = 1
};

/* What a session runs on. The pointers live as long as the session. */
typedef struct octavo_session_desc {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SESSION_DESC */
  octavo_device device;
  const octavo_host *host;
  const octavo_kernels *kernels;      /* complete: a stub where the provider has nothing */
  const octavo_kernels_caps *caps;    /* of kernels_ctx */
  void *kernels_ctx;                  /* first argument of every kernel */
  const octavo_option_value *options; /* every option, defaults filled in; valid during the call */
  uint64_t option_count;
  uint64_t flags; /* OCTAVO_SESSION_... */
} octavo_session_desc;

enum {
  OCTAVO_PARAMETER_LINEAR_WEIGHT = 1, /* the weight [N, K] of linears, now or in a later seal */
  OCTAVO_PARAMETER_FROZEN = 2         /* no gradient, no states */
};

typedef struct octavo_parameter_desc {
  uint32_t size;
  uint32_t kind;   /* OCTAVO_KIND_PARAMETER_DESC */
  octavo_str name; /* unique in the session; a checkpoint key */
  int64_t rows;    /* N; a vector is one row */
  int64_t cols;    /* K */
  uint32_t dtype;  /* the host's own: OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16 */
  uint32_t gradient_dtype;
  uint32_t flags; /* OCTAVO_PARAMETER_... */
  uint32_t reserved;
} octavo_parameter_desc;

/* A place where a LINEAR_WEIGHT parameter is used: y[M, N] = x[M, K] w[N, K]^T + bias[1, N].
 * Tied weights are two linears with one parameter. */
typedef struct octavo_linear_desc {
  uint32_t size;
  uint32_t kind;   /* OCTAVO_KIND_LINEAR_DESC */
  octavo_str name; /* unique among linears */
  uint32_t weight; /* parameter id */
  uint32_t flags;  /* 0 */
} octavo_linear_desc;

/* Who receives dw. */
enum {
  OCTAVO_GRADIENT_NONE = 0,   /* nobody: frozen */
  OCTAVO_GRADIENT_TENSOR = 1, /* octavo_backward_call.dw */
  OCTAVO_GRADIENT_SLOT = 2    /* the gradient slot; dw must be null */
};
enum {
  OCTAVO_LINEAR_NEEDS_X = 1, /* backward wants x again; nothing of it is in `saved` */
  OCTAVO_LINEAR_CAPTURE_SAFE = 2
};

/* What the host must provide for calls of one linear; constant from its seal on. */
typedef struct octavo_linear_plan {
  uint32_t size;
  uint32_t kind;       /* OCTAVO_KIND_LINEAR_PLAN */
  uint32_t flags;      /* OCTAVO_LINEAR_... */
  uint32_t gradient;   /* OCTAVO_GRADIENT_... */
  octavo_extent saved; /* bytes of `saved`, by M */
  octavo_extent forward_workspace;
  octavo_extent backward_workspace;
  uint64_t weight_workspace; /* bytes for quantize_weight of this linear's weight */
} octavo_linear_plan;

/* quantize_weight: refreshes the weight cache, of which it is the only writer. */
typedef struct octavo_weight_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_WEIGHT_CALL */
  uint32_t parameter;
  uint32_t flags;     /* 0 */
  void *stream;       /* the device's queue; null on a CPU */
  void *const *slots; /* the parameter's list */
  void *workspace;    /* the largest weight_workspace of its linears */
} octavo_weight_call;

enum {
  OCTAVO_FORWARD_EVALUATION = 1 /* of a model that is not being trained: `saved` is null, and a
                                   backend may compute in the host's precision. A forward that a
                                   recomputation repeats is not one */
};

/* linear_forward: y = x w^T + bias. x and y: f32, bf16 or f16, each call its own. */
typedef struct octavo_forward_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_FORWARD_CALL */
  uint32_t linear;
  uint32_t flags; /* OCTAVO_FORWARD_... */
  void *stream;
  const octavo_tensor *x;    /* [M, K], any M >= 0 */
  octavo_tensor *y;          /* [M, N], overwritten; never x's memory */
  const octavo_tensor *bias; /* [1, N] or null */
  void *const *slots;        /* the linear's list */
  void *saved;     /* plan.saved bytes, every one written; null: no backward will follow */
  void *workspace; /* plan.forward_workspace bytes */
} octavo_forward_call;

enum {
  OCTAVO_BACKWARD_OVERWRITE = 1,  /* dw and db are written; without it they are accumulated */
  OCTAVO_BACKWARD_SKIP_WEIGHT = 2 /* dgrad only; wgrad comes in a call of its own, or not at all */
};

/* linear_backward: dx = dy w, dw += dy^T x, db += column sums of dy. Null outputs are not wanted.
 */
typedef struct octavo_backward_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_BACKWARD_CALL */
  uint32_t linear;
  uint32_t flags; /* OCTAVO_BACKWARD_... */
  void *stream;
  const octavo_tensor *dy; /* [M, N] */
  const octavo_tensor *x;  /* [M, K] with OCTAVO_LINEAR_NEEDS_X, else ignored */
  octavo_tensor *dx;       /* [M, K], overwritten */
  octavo_tensor *dw;       /* [N, K], with OCTAVO_GRADIENT_TENSOR */
  octavo_tensor *db;       /* [1, N] */
  void *const *slots;      /* the linear's list */
  const void *saved;       /* as forward wrote it; unchanged, so it may be used twice */
  void *workspace;         /* plan.backward_workspace bytes */
} octavo_backward_call;

/* end_step: derives the next scales and clears the accumulators. */
typedef struct octavo_step_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_STEP_CALL */
  void *stream;
  void *const *slots; /* the session's list */
} octavo_step_call;

typedef struct octavo_backend {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_BACKEND */
  /* Emits every option, always the same ones. */
  octavo_status (*list_options)(const octavo_option_sink *sink)
      OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Any number of verdicts on whether open_session would succeed; no side effect. One DECLINE is a
   * refusal; the status says only whether the question could be answered. */
  octavo_status (*check_session)(const octavo_session_desc *desc, const octavo_verdict_sink *sink)
      OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*open_session)(const octavo_session_desc *desc,
                                octavo_session **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Ids count from 0 in order of success. A DECLINE verdict with OCTAVO_OK means that the host
   * keeps this object in its own precision; no id is used up and no trace is kept. */
  octavo_status (*add_parameter)(octavo_session *s, const octavo_parameter_desc *desc,
                                 octavo_verdict *verdict,
                                 uint32_t *id) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  octavo_status (*add_linear)(octavo_session *s, const octavo_linear_desc *desc,
                              octavo_verdict *verdict,
                              uint32_t *id) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  /* Emits slots and uses for what was added since the last seal. What was emitted never changes:
   * a later seal adds its own pools and appends to the session's list. */
  octavo_status (*seal)(octavo_session *s,
                        const octavo_slot_sink *sink) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  octavo_status (*linear_plan)(const octavo_session *s, uint32_t linear,
                               octavo_linear_plan *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*quantize_weight)(const octavo_session *s, const octavo_weight_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*linear_forward)(const octavo_session *s, const octavo_forward_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*linear_backward)(const octavo_session *s, const octavo_backward_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*end_step)(const octavo_session *s,
                            const octavo_step_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  void (*close_session)(octavo_session *s) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
} octavo_backend;

#endif
