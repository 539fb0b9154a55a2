/* octavo/gradients.h: interface "octavo.gradients/1", gradient reduction over ranks in FP8.
 *
 * Optional. The backend computes, the host communicates: plan_reduction states the stages of one
 * bucket of parameters; the host calls run_stage for each and, after it, its own collective from
 * `send` to `recv`. There is no rank argument, since under SPMD the rank is a run-time value. FP8
 * codes cross collectives as OCTAVO_U8, because common libraries refuse FP8 dtypes.
 */
#ifndef OCTAVO_GRADIENTS_H
#define OCTAVO_GRADIENTS_H

#include "octavo/optimizer.h"

#define OCTAVO_GRADIENTS_ID "octavo.gradients/1"

enum {
  OCTAVO_COLLECTIVE_NONE = 0,
  OCTAVO_COLLECTIVE_ALL_REDUCE_MAX = 1,
  OCTAVO_COLLECTIVE_ALL_REDUCE_SUM = 2,
  OCTAVO_COLLECTIVE_ALL_TO_ALL = 3,
  OCTAVO_COLLECTIVE_ALL_GATHER = 4,
  OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM = 5
};

/* After this stage the host runs `collective` from send to recv. */
typedef struct octavo_gradient_stage {
  uint32_t size;
  uint32_t kind;       /* OCTAVO_KIND_GRADIENT_STAGE */
  uint32_t collective; /* OCTAVO_COLLECTIVE_...; an unknown one is refused by the host */
  uint32_t dtype;      /* of the elements in send and recv */
  uint64_t send_count; /* elements */
  uint64_t recv_count; /* elements */
} octavo_gradient_stage;

/* Describes one bucket; stage() receives its stages in order. */
typedef struct octavo_gradient_plan {
  uint32_t size;
  uint32_t kind;  /* OCTAVO_KIND_GRADIENT_PLAN */
  uint32_t world; /* number of ranks, >= 1 */
  uint32_t reserved;
  const uint32_t *parameters;
  uint64_t count;
  uint64_t state_bytes; /* out: scratch that lives over all stages of the bucket */
  void *ctx;
  octavo_status (*stage)(void *ctx, const octavo_gradient_stage *s);
} octavo_gradient_plan;

/* send and recv are each as long as the longest stage and do not overlap; what a stage does not
 * send of `send` it may use as scratch. Several buckets may be in flight, each with its own send,
 * recv and state. */
typedef struct octavo_gradient_call {
  uint32_t size;
  uint32_t kind;  /* OCTAVO_KIND_GRADIENT_CALL */
  uint32_t stage; /* counts from 0 */
  uint32_t world;
  void *stream;
  const octavo_parameter_item *items;
  uint64_t count;
  const void *recv; /* result of the previous stage's collective */
  void *send;
  void *state;
} octavo_gradient_call;

typedef struct octavo_gradients {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GRADIENTS */
  octavo_status (*plan_reduction)(const octavo_session *s,
                                  octavo_gradient_plan *plan) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*run_stage)(const octavo_session *s,
                             const octavo_gradient_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_gradients;

#endif
