/* octavo/backend.h: interface "octavo.backend/1", an FP8 training method.
 *
 *   list_options -> check_session -> open_session
 *                                        |
 *      +------------------------------ OPEN <-----------------------------+
 *      | add_parameter, add_linear (any order, weight before its linear)  |
 *      +------------> seal -> SEALED ------- add_*, seal again -----------+
 *                               |
 *   one step:  quantize_weight   before the first forward of its linears in the step, each weight,
 *                                changed or not; again after a change, a load, a later seal
 *              { linear_forward -> linear_backward }*   any order, batch size, thread, repetition
 *              host: combine REDUCE slots over ranks; step the weights
 *              end_step          once; the only verb that changes scales and clears accumulators
 *   close_session (in any state, with no call in flight)
 *
 * A session is immutable after seal: the result of a hot verb depends only on its arguments and the
 * options. But for a weight whose list has an access for quantize_weight, a session may remember
 * that it was quantized: a forward without an earlier quantize_weight, or octavo_shard.place, may
 * be refused with OCTAVO_WRONG_STATE, in evaluation also, even if the slots have its codes. A
 * queued call counts, a failed one does not, and a later seal does not undo it.
 *
 * Scales change only in end_step, so a recomputed forward is bit-identical to the first. The amax
 * of a weight enters its history by a quantize_weight that records only. A host that leaves it out,
 * for a weight without a forward in the step or after a skipped one, has other scales from then on
 * than one that does not, or a run that was resumed there. Codes have the scales of their
 * quantize_weight: an evaluation after end_step quantizes first, or differs from a resumed one.
 *
 * If a setup verb fails, the session is unchanged. If a step or hot verb fails, its outputs (of
 * end_step the slots with UPDATE) and the gradients that it adds to are undefined; an accumulator
 * has gained all, a part or nothing of the call's record; all else is unchanged. A host that
 * goes on drops these gradients, and after a failed end_step continues from a checkpoint.
 *
 * Need not be called: a verb without an access to any slot of its list, and a verb with M = 0 that
 * is not to overwrite; a forward with M = 0 is left out only together with its backward. Must not
 * be called: quantize_weight of a parameter without sealed linears (perhaps all were declined).
 * Verbs of sealed objects are also legal in OPEN. An id that no seal covers is unknown:
 * OCTAVO_INVALID.
 *
 * What a host may do, and a backend must bear:
 *   - end_step after a step that changed no weight, after evaluation only, or again without a call
 *     in between: the rules of scales say what an amax of 0 does, and history_flags of
 *     octavo_delayed_scale_update whether it enters. Without end_step, accumulators keep growing
 *     and scales stay.
 *   - a recomputed forward, or a backward in two calls: each accumulates, which changes no MAX,
 *     and counts twice in SUM slots. Those are telemetry.
 *   - another weight between a forward and its backward: after quantize_weight, backward takes the
 *     codes that are then in the cache. A host that wants those of the forward keeps or restores
 *     the cache.
 *   - `saved` copied or moved to other memory of the device, or away and back.
 *   - evaluation in between: quantize_weight does not depend on OCTAVO_FORWARD_EVALUATION.
 *   - diagnose is called from any thread of the plugin, and never calls back into it.
 * Inputs and outputs of one call do not overlap, except that accumulated and updated memory is read
 * and written: y is not x, dx is not dy. dw is not a slot, except that it is the same tensor as the
 * native slot of role GRADIENT of a parameter that has one. Calls that add to one dw, db or
 * gradient slot are ordered; only slots with OCTAVO_ACCESS_ACCUMULATE take concurrent calls. Values
 * beyond the dtype of an output become infinity.
 */
#ifndef OCTAVO_BACKEND_H
#define OCTAVO_BACKEND_H

#include "octavo/host.h"
#include "octavo/slots.h"

#define OCTAVO_BACKEND_ID "octavo.backend/1"

typedef struct octavo_kernels octavo_kernels;
typedef struct octavo_kernels_caps octavo_kernels_caps;
typedef struct octavo_session octavo_session; /* opaque, defined by each backend */

/* An option of the backend: a key of the configuration table [fp8.<id>]. The caller, such as
 * liboctavo, checks type, range and choices; a backend may rely on it. open_session answers
 * OCTAVO_INVALID to a name that the backend does not list. */
typedef struct octavo_option {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTION */
  octavo_str name;
  octavo_str help;      /* one sentence, including the unit */
  octavo_value initial; /* the default; its type is the option's type */
  octavo_value low;     /* inclusive bounds of INT and REAL; unbounded if the type is 0 */
  octavo_value high;
  const octavo_str *choices; /* the valid values of TEXT; null if any text is valid */
  uint64_t choice_count;
} octavo_option;

typedef struct octavo_option_sink {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTION_SINK */
  void *ctx;
  /* A failure ends list_options, which returns it. */
  octavo_status (*option)(void *ctx, const octavo_option *o);
} octavo_option_sink;

/* An option and its value. Frozen. */
typedef struct octavo_option_value {
  octavo_str name;
  octavo_value value;
} octavo_option_value;

enum {
  /* Equal inputs must give equal bits in every run. The host checks that the caps have
   * OCTAVO_CAPS_DETERMINISTIC; a backend that differs between runs on such kernels declines in
   * check_session. */
  OCTAVO_SESSION_DETERMINISTIC = 1
};

/* The device, kernels and options of a session. The struct and `options` are valid during the call,
 * the other pointers as long as the session. A backend calls neither describe nor probe_device,
 * open_device or close_device of the kernels. */
typedef struct octavo_session_desc {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SESSION_DESC */
  octavo_device device;
  const octavo_host *host;
  const octavo_kernels *kernels;      /* no function up to the host's own sizeof is null, and `size`
                                         is that: who opens the session fills in stubs, which
                                         return OCTAVO_UNSUPPORTED and report nothing */
  const octavo_kernels_caps *caps;    /* capabilities of kernels_ctx */
  void *kernels_ctx;                  /* the first argument of every kernel */
  const octavo_option_value *options; /* every option once, defaults included, in any order. A
                                         backend takes a missing one for its default */
  uint64_t option_count;
  uint64_t flags; /* OCTAVO_SESSION_...; open_session answers OCTAVO_INVALID to an unknown one */
} octavo_session_desc;

enum {
  OCTAVO_PARAMETER_LINEAR_WEIGHT = 1, /* the weight [N, K] of a linear, of this seal or of a later
                                         one, which a backend may decline then */
  OCTAVO_PARAMETER_FROZEN = 2         /* no gradient and no optimizer state */
};

typedef struct octavo_parameter_desc {
  uint32_t size;
  uint32_t kind;           /* OCTAVO_KIND_PARAMETER_DESC */
  octavo_str name;         /* unique among the parameters of the session, which the host sees to;
                              used in checkpoint keys */
  int64_t rows;            /* N, at least 1; 1 for a vector */
  int64_t cols;            /* K, at least 1 */
  uint32_t dtype;          /* of the host: OCTAVO_F32, OCTAVO_BF16 or OCTAVO_F16 */
  uint32_t gradient_dtype; /* likewise, also without a gradient slot; not read if FROZEN */
  uint32_t flags;          /* OCTAVO_PARAMETER_... */
  uint32_t reserved;
} octavo_parameter_desc;

/* A use of a LINEAR_WEIGHT parameter: y[M, N] = x[M, K] w[N, K]^T + bias[1, N]. Tied weights are
 * several linears with one parameter. Whether a call has a bias is each call's. */
typedef struct octavo_linear_desc {
  uint32_t size;
  uint32_t kind;   /* OCTAVO_KIND_LINEAR_DESC */
  octavo_str name; /* unique among the linears of the session */
  uint32_t weight; /* id of a LINEAR_WEIGHT; another one is answered with OCTAVO_INVALID */
  uint32_t flags;  /* 0 */
  /* Options for this linear alone; null and 0 if none. A backend that cannot follow one declines
   * the linear with OCTAVO_REASON_OPTION: one that it does not list, or has for whole sessions
   * only, whatever the value, or where the weight, which other linears share or a seal has fixed,
   * would need other slots or codes; one that a session is declined for, with that reason. Valid
   * during the call. Slots and accesses of other linears are as without them, but for ids and
   * columns of pools. The caller of the backend checks them as the session's. liboctavo does so in
   * octavo_add_linear, and leaves the session's values out. */
  const octavo_option_value *options;
  uint64_t option_count;
} octavo_linear_desc;

/* Where linear_backward writes dw. */
enum {
  OCTAVO_GRADIENT_NONE = 0,   /* nowhere: the weight is frozen */
  OCTAVO_GRADIENT_TENSOR = 1, /* octavo_backward_call.dw */
  OCTAVO_GRADIENT_SLOT = 2    /* the gradient slot, not NATIVE; octavo_backward_call.dw is null */
};
enum {
  OCTAVO_LINEAR_NEEDS_X = 1, /* backward needs x; `saved` does not contain it */
  /* Outside of training the layer is to run in the host's precision: a host with a linear of its
   * own calls that, with its gradients. One without calls linear_forward with
   * OCTAVO_FORWARD_EVALUATION, and the backend computes the same product. */
  OCTAVO_LINEAR_EVALUATES_IN_HOST = 2,
  /* x, y, dy and dx of this dtype are declined: linear_forward and linear_backward answer
   * OCTAVO_UNSUPPORTED and write nothing. A host converts before the call, or tells its user which
   * dtypes are taken; it never computes something else in silence. At most two of the three; bias,
   * dw, db and the input of a prologue are not concerned. But db is f32 on kernels without
   * `dequantize` of f32. */
  OCTAVO_LINEAR_DECLINES_F32 = 4,
  OCTAVO_LINEAR_DECLINES_BF16 = 8,
  OCTAVO_LINEAR_DECLINES_F16 = 16
};

/* Memory and inputs that the host must provide for the calls of a linear. Constant after the seal
 * of the linear. The content of a workspace is undefined before and after a call; its address may
 * be null where the size is 0. */
typedef struct octavo_linear_plan {
  uint32_t size;
  uint32_t kind;       /* OCTAVO_KIND_LINEAR_PLAN */
  uint32_t flags;      /* OCTAVO_LINEAR_... */
  uint32_t gradient;   /* OCTAVO_GRADIENT_... */
  octavo_extent saved; /* size of `saved` for M rows */
  octavo_extent forward_workspace;
  octavo_extent backward_workspace;
  uint64_t weight_workspace; /* bytes for quantize_weight of the linear's weight */
} octavo_linear_plan;

/* Arguments of quantize_weight, which refreshes the weight cache and is its only writer. */
typedef struct octavo_weight_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_WEIGHT_CALL */
  uint32_t parameter;
  uint32_t flags; /* 0 */
  void *stream;
  void *const *slots; /* the parameter's list */
  void *workspace;    /* the largest weight_workspace of the parameter's sealed linears */
} octavo_weight_call;

enum {
  OCTAVO_FORWARD_EVALUATION = 1 /* the model is not being trained: `saved` is null, and the backend
                                   may compute in the host's precision. Optional. Never for a
                                   forward that is recomputed in backward. Pass null for slots with
                                   ACCUMULATE, or casts, if it has any, record its data also */
};

/* Arguments of linear_forward: y = x w^T + bias. x, y and bias are f32, bf16 or f16, each on its
 * own, as far as plan.flags takes them, and never codes; they may differ from call to call. Sizes
 * of the plan hold for all of them, and for M up to 2^40. */
typedef struct octavo_forward_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_FORWARD_CALL */
  uint32_t linear;
  uint32_t flags; /* OCTAVO_FORWARD_... */
  void *stream;
  const octavo_tensor *x;    /* [M, K], M >= 0 */
  octavo_tensor *y;          /* [M, N], overwritten; must not overlap x */
  const octavo_tensor *bias; /* [1, N] or null */
  void *const *slots;        /* the linear's list */
  void *saved; /* plan.saved bytes, all written, also with M = 0; null if no backward of this call
                  follows (one that is recomputed later) or the size is 0. y and what is recorded
                  do not depend on it */
  void *workspace; /* plan.forward_workspace bytes */
} octavo_forward_call;

enum {
  /* write dw and db instead of adding to them; with M = 0 they are 0. A gradient slot and its
   * scale_inv may hold anything before. A host that wants only one of the two written, as with tied
   * weights that have a bias each, clears that one itself and leaves the flag out */
  OCTAVO_BACKWARD_OVERWRITE = 1,
  OCTAVO_BACKWARD_SKIP_WEIGHT = 2 /* leave out dw, even one that is given or a slot: it follows in a
                                     separate call, or never. db is computed if it is not null, so
                                     pass it to one of the two calls */
};

/* Arguments of linear_backward: dx = dy w, dw += dy^T x, db += column sums of dy. An output that is
 * null is not computed, in any call. Every call records the amax of dy, whatever its outputs; a
 * host may leave out a call without any. dy, x, dx, dw and db are f32, bf16 or f16 each, whatever
 * gradient_dtype is. */
typedef struct octavo_backward_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_BACKWARD_CALL */
  uint32_t linear;
  uint32_t flags; /* OCTAVO_BACKWARD_... */
  void *stream;
  const octavo_tensor *dy; /* [M, N] */
  const octavo_tensor *x;  /* [M, K] with OCTAVO_LINEAR_NEEDS_X, also where dw is not computed;
                              otherwise not read, may be null */
  octavo_tensor *dx;       /* [M, K], overwritten */
  octavo_tensor *dw;       /* [N, K], with OCTAVO_GRADIENT_TENSOR; with NONE not read or null */
  octavo_tensor *db;       /* [1, N] */
  void *const *slots;      /* the linear's list */
  const void *saved;       /* as written by forward; not modified, so backward may be repeated */
  void *workspace;         /* plan.backward_workspace bytes */
} octavo_backward_call;

/* Arguments of end_step, which derives the next scales and clears the accumulators, also the
 * slot of role NONFINITE. Never before the first seal. */
typedef struct octavo_step_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_STEP_CALL */
  void *stream;
  void *const *slots; /* the session's list */
} octavo_step_call;

/* Required: every function, but quantize_weight and end_step where no slot has an access for
 * them: a host refuses such a slot at seal, and does not call what is missing. */
typedef struct octavo_backend {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_BACKEND */
  /* Emits every option. The result is the same for every call. */
  octavo_status (*list_options)(const octavo_option_sink *sink)
      OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Emits verdicts on whether open_session would succeed, at least one, without side effects. A
   * single DECLINE is a refusal: the host does not open the session. The status only indicates
   * whether the check itself could be made: it is OCTAVO_INVALID, perhaps without a verdict, for a
   * malformed description, which may also be left to open_session. A backend asks `ability` about
   * the calls of its verbs: what the kernels lack is declined here, by add_parameter or add_linear,
   * or is a dtype that the plan declines. Verbs of a sealed linear make no other call. */
  octavo_status (*check_session)(const octavo_session_desc *desc, const octavo_verdict_sink *sink)
      OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* On success, *out is a new session; free it with close_session. */
  octavo_status (*open_session)(const octavo_session_desc *desc,
                                octavo_session **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Adds a parameter or a linear. Parameters other than weights of linears are for
   * octavo.optimizer/2; without it they need not be added, and nothing happens to them. Ids
   * count from 0 in the order of accepted objects. OCTAVO_OK with a DECLINE verdict, as for a dtype
   * or shape that the backend does not take, means that the host keeps the object in its own
   * precision, or offers it again with other options; the session and *id are then unchanged. */
  octavo_status (*add_parameter)(octavo_session *s, const octavo_parameter_desc *desc,
                                 octavo_verdict *verdict,
                                 uint32_t *id) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  octavo_status (*add_linear)(octavo_session *s, const octavo_linear_desc *desc,
                              octavo_verdict *verdict,
                              uint32_t *id) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  /* Emits the slots and uses of the objects added since the last seal, which may be none. What has
   * been emitted never changes: a later seal adds pools of its own, and of the lists of earlier
   * objects only the session's grows. Equal calls in equal order emit the same, ids included. */
  octavo_status (*seal)(octavo_session *s,
                        const octavo_slot_sink *sink) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  /* Fills in the plan of a sealed linear. */
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
  /* Frees the session. No call on it may be in flight. */
  void (*close_session)(octavo_session *s) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
} octavo_backend;

#endif
