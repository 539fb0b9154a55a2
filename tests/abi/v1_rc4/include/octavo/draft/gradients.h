/* octavo/draft/gradients.h: interface "octavo.gradients/1", gradient reduction over ranks in FP8.
 *
 * Optional. The backend computes and the host communicates. plan_reduction describes the stages of
 * one bucket of parameters. For each stage, the host calls run_stage and then runs the stage's
 * collective from `send` to `recv`. No function takes a rank, because under SPMD the rank is a
 * run-time value. FP8 codes are sent as OCTAVO_U8, because common communication libraries do not
 * accept FP8 dtypes. Provisional: the id changes when anything of it changes.
 */
#ifndef OCTAVO_DRAFT_GRADIENTS_H
#define OCTAVO_DRAFT_GRADIENTS_H

#include "octavo/draft/optimizer.h"

#define OCTAVO_GRADIENTS_ID "octavo.gradients/1"

#define OCTAVO_KIND_GRADIENT_STAGE 0x800Fu
#define OCTAVO_KIND_GRADIENT_PLAN 0x8010u
#define OCTAVO_KIND_GRADIENT_CALL 0x8011u
#define OCTAVO_KIND_GRADIENTS 0x8012u

/* One stage. After run_stage, the host runs `collective` from send to recv. */
typedef struct octavo_gradient_stage {
  uint32_t size;
  uint32_t kind;       /* OCTAVO_KIND_GRADIENT_STAGE */
  uint32_t collective; /* OCTAVO_COLLECTIVE_...; hosts reject unknown values */
  uint32_t dtype;      /* of the elements of send and recv */
  uint64_t send_count; /* elements */
  uint64_t recv_count; /* elements */
} octavo_gradient_stage;

/* Describes a bucket. stage() receives its stages in order. */
typedef struct octavo_gradient_plan {
  uint32_t size;
  uint32_t kind;  /* OCTAVO_KIND_GRADIENT_PLAN */
  uint32_t world; /* number of ranks, >= 1 */
  uint32_t reserved;
  const uint32_t *parameters;
  uint64_t count;
  uint64_t state_bytes; /* output: size of the scratch memory shared by all stages */
  void *ctx;
  octavo_status (*stage)(void *ctx, const octavo_gradient_stage *s);
} octavo_gradient_plan;

/* Arguments of run_stage. send and recv each have the size of the longest stage and do not overlap.
 * A stage may use the part of `send` that it does not send as scratch memory. Several buckets may
 * be in flight, each with its own send, recv and state. */
typedef struct octavo_gradient_call {
  uint32_t size;
  uint32_t kind;  /* OCTAVO_KIND_GRADIENT_CALL */
  uint32_t stage; /* index of the stage, from 0 */
  uint32_t world;
  void *stream;
  const octavo_parameter_item *items;
  uint64_t count;
  const void *recv; /* the result of the previous stage's collective */
  void *send;
  void *state;
} octavo_gradient_call;

/* Required: both functions. */
typedef struct octavo_gradients {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GRADIENTS */
  /* Emits the stages of a bucket and sets plan->state_bytes. */
  octavo_status (*plan_reduction)(const octavo_session *s,
                                  octavo_gradient_plan *plan) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Computes one stage. Stages run in order, starting with 0. */
  octavo_status (*run_stage)(const octavo_session *s,
                             const octavo_gradient_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_gradients;

#endif
