/* octavo/draft/optimizer.h: interface "octavo.optimizer/2", an optimizer on the backend's
 * own state formats, Adam as a rule.
 *
 * Required of a backend that emits a weight or gradient slot without OCTAVO_SLOT_NATIVE. Optional
 * otherwise: with native weights and gradients, the host runs its own optimizer, and in a session
 * without an access for OPTIMIZER_STEP it has to: there no function of this table but describe and
 * workspace_bytes is called. Hyperparameters, the skip flag and the step count are in device
 * memory, so that a captured graph remains valid when they change. Gradients may be native where
 * weights are not: each call then has them in the list. Gradients in slots of several ranks are for
 * "octavo.gradients/1": hosts refuse them without it. Provisional: the id changes when anything
 * of it changes.
 */
#ifndef OCTAVO_DRAFT_OPTIMIZER_H
#define OCTAVO_DRAFT_OPTIMIZER_H

#include "octavo/backend.h"

#define OCTAVO_OPTIMIZER_ID "octavo.optimizer/2"

#define OCTAVO_KIND_OPTIMIZER_CALL 0x800Au
#define OCTAVO_KIND_NORM_CALL 0x800Bu
#define OCTAVO_KIND_PARAMETER_CALL 0x800Cu
#define OCTAVO_KIND_PREPARE_CALL 0x800Du
#define OCTAVO_KIND_OPTIMIZER_DESC 0x801Du
#define OCTAVO_KIND_OPTIMIZER 0x801Eu

/* Index into the array of hyperparameters, f32[OCTAVO_HYPER_COUNT]. Unnamed elements are 0, unless
 * octavo_optimizer_desc names them. */
enum {
  OCTAVO_HYPER_LR = 0,
  OCTAVO_HYPER_BETA1 = 1,
  OCTAVO_HYPER_BETA2 = 2,
  OCTAVO_HYPER_EPS = 3,
  OCTAVO_HYPER_WEIGHT_DECAY = 4,
  OCTAVO_HYPER_GRAD_SCALE = 5, /* multiplier of every gradient: clipping, unscaling; 1 if none */
  OCTAVO_HYPER_COUNT = 8
};

/* Which optimizer it is. A host refuses a program that means another algorithm, or sets a
 * hyperparameter that has no name here. Texts are static. */
typedef struct octavo_optimizer_desc {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTIMIZER_DESC */
  /* With g, the gradient, and w, the weight:
   *   "adamw"  weight_decay shrinks the weight
   *   "adam"   weight_decay * w is added to g
   *   "sgd"    m = momentum * m + g + weight_decay * w, then w -= lr * m
   *   "lion"   w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w),
   *            then m = beta2 * m + (1 - beta2) * g
   * Others have other names. The kernels of octavo/draft/adam.h step by Adam only: a step
   * by another algorithm needs kernels that read `skip` on the device, such as its own. */
  octavo_str algorithm;
  /* The hyperparameters that a step reads: "lr", "beta1", "beta2", "eps", "weight_decay" and
   * "grad_scale" at their index above, others ("momentum") at 6 or 7. Empty: the element is not
   * read. A host refuses a name that its program has no value for. */
  octavo_str hyper[OCTAVO_HYPER_COUNT];
} octavo_optimizer_desc;

/* A parameter of a call. Frozen. */
typedef struct octavo_parameter_item {
  uint32_t parameter;
  uint32_t reserved;
  void *const *slots; /* the parameter's list */
  const float *hyper; /* device f32[OCTAVO_HYPER_COUNT], one array per parameter group */
} octavo_parameter_item;

/* Arguments of optimizer_step. */
typedef struct octavo_optimizer_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTIMIZER_CALL */
  void *stream;
  const octavo_parameter_item *items; /* [count]; each parameter at most once */
  uint64_t count;
  const float *skip; /* device f32. If nonzero, nothing changes, not even the step count; may be
                        null. The nonfinite slot covers casts only, so a host with native gradients
                        passes the maximum of the slot and its own flag */
  void *workspace;   /* workspace_bytes for these parameters */
} octavo_optimizer_call;

/* Arguments of sum_of_squares. */
typedef struct octavo_norm_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_NORM_CALL */
  void *stream;
  const octavo_parameter_item *items;
  uint64_t count;
  float *sum; /* device f32; the squares of all gradients are added to it */
  void *workspace;
} octavo_norm_call;

/* Arguments of prepare_step, which derives the inputs of optimizer_step from the sum of squares on
 * the device, so that clipping and skipping need no synchronization. The host combines `sum` and
 * `nonfinite` over the ranks beforehand. */
typedef struct octavo_prepare_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PREPARE_CALL */
  void *stream;
  const float *sum; /* device f32 [sum_count] from sum_of_squares, added in ascending order. With
                       one sum per parameter, the result does not depend on the number of ranks */
  uint64_t sum_count;
  const float *nonfinite; /* the nonfinite slot; may be null */
  float *norm;            /* output, device f32: factor * sqrt(total); may be null */
  float *skip; /* output, device f32: 1 if `nonfinite` is set or the norm is Inf or NaN, which
                  includes native gradients, else 0; may be null */
  float *const *hyper; /* [count], one per parameter group. Sets OCTAVO_HYPER_GRAD_SCALE to
                          factor * min(1, max_norm / (norm + 1e-6)) */
  uint64_t count;
  float factor;   /* further multiplier of every gradient, such as 1 / loss scale; 1 if none */
  float max_norm; /* 0 disables clipping */
} octavo_prepare_call;

/* Arguments of read_parameter and write_parameter. */
typedef struct octavo_parameter_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PARAMETER_CALL */
  uint32_t parameter;
  uint32_t role; /* OCTAVO_ROLE_WEIGHT, MASTER_WEIGHT, GRADIENT, EXP_AVG or EXP_AVG_SQ; one that the
                    parameter lacks, or whose slots are null in the call, is refused */
  void *stream;
  octavo_tensor *plain; /* of the parameter's shape; f32, bf16 or f16 */
  void *const *slots;   /* the parameter's list, every entry with its address */
  void *workspace;
} octavo_parameter_call;

/* Required: every function but prepare_step, without which a host derives its inputs itself. */
typedef struct octavo_optimizer {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTIMIZER */
  /* Fills in what optimizer_step computes with the options of the session. */
  octavo_status (*describe)(const octavo_session *s,
                            octavo_optimizer_desc *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* The workspace size that is sufficient for each function below with these parameters. The size
   * for a single parameter also covers read_parameter and write_parameter. Legal in every session
   * and for FROZEN parameters, also among others, which need 0 where nothing is read or written. */
  octavo_status (*workspace_bytes)(const octavo_session *s, const uint32_t *parameters,
                                   uint64_t count,
                                   uint64_t *bytes) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* One step of each parameter of the call. A FROZEN one is refused, as in sum_of_squares. */
  octavo_status (*optimizer_step)(const octavo_session *s, const octavo_optimizer_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* Adds the squares of the gradients to *c->sum, for the global norm. */
  octavo_status (*sum_of_squares)(const octavo_session *s,
                                  const octavo_norm_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* Accepts at most 64 parameter groups per call. */
  octavo_status (*prepare_step)(const octavo_session *s, const octavo_prepare_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* Converts the slots of a role to plain values. */
  octavo_status (*read_parameter)(const octavo_session *s, const octavo_parameter_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* Converts plain values to the slots of a role, WEIGHT and MASTER_WEIGHT together, with a scale
   * by the backend's rule. Formats without infinity saturate: check values that may contain Inf. */
  octavo_status (*write_parameter)(const octavo_session *s, const octavo_parameter_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_optimizer;

#endif
