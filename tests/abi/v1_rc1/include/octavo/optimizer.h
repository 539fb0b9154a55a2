/* octavo/optimizer.h: interface "octavo.optimizer/1", Adam on the backend's own state formats.
 *
 * Optional; presence is the capability. A backend that emits a weight or gradient slot without
 * OCTAVO_SLOT_NATIVE must provide it; one whose weights are native need not, and then the host's
 * own optimizer runs. Hyperparameters, the skip flag and the step count are device memory, so a
 * captured graph stays right when they change.
 */
#ifndef OCTAVO_OPTIMIZER_H
#define OCTAVO_OPTIMIZER_H

#include "octavo/backend.h"

#define OCTAVO_OPTIMIZER_ID "octavo.optimizer/1"

/* Index into the f32[8] of hyperparameters; the rest is 0. */
enum {
  OCTAVO_HYPER_LR = 0,
  OCTAVO_HYPER_BETA1 = 1,
  OCTAVO_HYPER_BETA2 = 2,
  OCTAVO_HYPER_EPS = 3,
  OCTAVO_HYPER_WEIGHT_DECAY = 4,
  OCTAVO_HYPER_GRAD_SCALE = 5, /* multiplies every gradient: clipping, loss unscaling; 1: none */
  OCTAVO_HYPER_COUNT = 8
};

/* One parameter of a step. Frozen. */
typedef struct octavo_parameter_item {
  uint32_t parameter;
  uint32_t reserved;
  void *const *slots; /* the parameter's list */
  const float *hyper; /* device f32[OCTAVO_HYPER_COUNT], one per parameter group */
} octavo_parameter_item;

typedef struct octavo_optimizer_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTIMIZER_CALL */
  void *stream;
  const octavo_parameter_item *items; /* each parameter at most once */
  uint64_t count;
  const float *skip; /* device f32; null or 0: step. Else change nothing, not even the step count.
                        The nonfinite slot tells of casts only: a host with native gradients gives
                        its own flag, the maximum of both */
  void *workspace;   /* workspace_bytes of these parameters */
} octavo_optimizer_call;

typedef struct octavo_norm_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_NORM_CALL */
  void *stream;
  const octavo_parameter_item *items;
  uint64_t count;
  float *sum; /* device f32: the squares of all gradients are added into it */
  void *workspace;
} octavo_norm_call;

/* From the sum of squares to what optimizer_step reads, on the device: clipping and skipping
 * without a synchronisation. The host has combined `sum` and `nonfinite` over the ranks before. */
typedef struct octavo_prepare_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PREPARE_CALL */
  void *stream;
  const float *sum; /* device f32 [sum_count] of sum_of_squares; added up in ascending order,
                       so one a parameter gives bits that do not depend on the ranks */
  uint64_t sum_count;
  const float *nonfinite; /* the nonfinite slot; or null */
  float *norm;            /* device f32: factor * sqrt(all sums); or null */
  float *skip;         /* device f32: 1 when nonfinite is set or the norm is Inf or NaN, so native
                          gradients are covered, too; or null */
  float *const *hyper; /* of each parameter group; OCTAVO_HYPER_GRAD_SCALE is written:
                          factor * min(1, max_norm / (norm + 1e-6)) */
  uint64_t count;
  float factor;   /* what every gradient is to be multiplied by besides: 1 / loss scale; 1: none */
  float max_norm; /* 0: no clipping */
} octavo_prepare_call;

typedef struct octavo_parameter_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PARAMETER_CALL */
  uint32_t parameter;
  uint32_t role; /* OCTAVO_ROLE_WEIGHT, MASTER_WEIGHT, GRADIENT, EXP_AVG or EXP_AVG_SQ */
  void *stream;
  octavo_tensor *plain; /* the parameter's shape, f32, bf16 or f16 */
  void *const *slots;   /* the parameter's list of OCTAVO_VERB_OPTIMIZER_STEP */
  void *workspace;
} octavo_parameter_call;

typedef struct octavo_optimizer {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_OPTIMIZER */
  /* Bytes that every verb below needs at most for this list of parameters; with one parameter it
   * covers read and write, too. */
  octavo_status (*workspace_bytes)(const octavo_session *s, const uint32_t *parameters,
                                   uint64_t count,
                                   uint64_t *bytes) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*optimizer_step)(const octavo_session *s, const octavo_optimizer_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*sum_of_squares)(const octavo_session *s,
                                  const octavo_norm_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* At most 64 parameter groups a call. */
  octavo_status (*prepare_step)(const octavo_session *s, const octavo_prepare_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* Slots to plain values. */
  octavo_status (*read_parameter)(const octavo_session *s, const octavo_parameter_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  /* Plain values to slots, the scale chosen by the backend's rule. A format without infinity
   * saturates: look at the values before, if they may hold one. */
  octavo_status (*write_parameter)(const octavo_session *s, const octavo_parameter_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_optimizer;

#endif
