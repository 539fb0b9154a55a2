/* step.h: one training step of the layer of numbers.h through a backend, shared by both golden
 * hosts.
 *
 * Every call struct ends where readable memory ends, so a backend that reads past the size it is
 * given ends the process.
 */
#ifndef OCTAVO_TESTS_STEP_H
#define OCTAVO_TESTS_STEP_H

#include "guard.h"
#include "numbers.h"
#include "octavo/draft/gradients.h"

typedef struct layer {
  const octavo_backend *backend;
  const octavo_optimizer *optimizer; /* null: none */
  const octavo_gradients *gradients; /* null: none */
  octavo_session *session;
  octavo_linear_plan plan;
  uint32_t parameter, linear;
  /* Of verb QUANTIZE_WEIGHT, FORWARD, BACKWARD, END_STEP, OPTIMIZER_STEP, REDUCE. */
  void *const *lists[6];
  void *saved; /* from forward to backward */
  numbers n;   /* n.w and n.dw are the native weight and gradient */
} layer;

static inline void *workspace_of(const octavo_extent *e) {
  const uint64_t rows = (M + e->row_multiple - 1) / e->row_multiple * e->row_multiple;
  return aligned_alloc(256, ((rows * e->bytes_per_row + e->fixed_bytes) / 256 + 1) * 256);
}

static inline int succeeded(const char *verb, octavo_status status) {
  if (status != OCTAVO_OK) printf("%s answered %d\n", verb, (int)status);
  return status == OCTAVO_OK;
}

static inline octavo_tensor *matrix(float *data, int64_t rows, int64_t cols) {
  octavo_tensor *t = guarded(sizeof *t);
  *t = (octavo_tensor){data, rows, cols, cols, OCTAVO_F32, 0};
  return t;
}

static inline int run_forward(layer *l, uint64_t next_value) {
  octavo_weight_call *q = GUARDED(octavo_weight_call, OCTAVO_KIND_WEIGHT_CALL);
  octavo_forward_call *f = GUARDED(octavo_forward_call, OCTAVO_KIND_FORWARD_CALL);
  q->parameter = l->parameter, q->slots = l->lists[OCTAVO_VERB_QUANTIZE_WEIGHT];
  q->workspace = aligned_alloc(256, (l->plan.weight_workspace / 256 + 1) * 256);
  f->linear = l->linear, f->slots = l->lists[OCTAVO_VERB_FORWARD];
  f->x = matrix(l->n.x, M, K), f->y = matrix(l->n.y, M, N), f->bias = matrix(l->n.bias, 1, N);
  f->saved = l->saved = workspace_of(&l->plan.saved);
  f->workspace = workspace_of(&l->plan.forward_workspace);
#ifdef OCTAVO_NEXT_ID
  f->next_value = next_value;
#else
  (void)next_value;
#endif
  return succeeded("quantize_weight", l->backend->quantize_weight(l->session, q)) &&
         succeeded("linear_forward", l->backend->linear_forward(l->session, f));
}

static inline int run_backward(layer *l) {
  octavo_backward_call *b = GUARDED(octavo_backward_call, OCTAVO_KIND_BACKWARD_CALL);
  octavo_step_call *e = GUARDED(octavo_step_call, OCTAVO_KIND_STEP_CALL);
  b->linear = l->linear, b->slots = l->lists[OCTAVO_VERB_BACKWARD];
  b->flags = OCTAVO_BACKWARD_OVERWRITE;
  b->dy = matrix(l->n.dy, M, N), b->x = matrix(l->n.x, M, K), b->dx = matrix(l->n.dx, M, K);
  b->dw = matrix(l->n.dw, N, K), b->db = matrix(l->n.db, 1, N);
  b->saved = l->saved;
  b->workspace = workspace_of(&l->plan.backward_workspace);
  e->slots = l->lists[OCTAVO_VERB_END_STEP];
  return succeeded("linear_backward", l->backend->linear_backward(l->session, b)) &&
         succeeded("end_step", l->backend->end_step(l->session, e));
}

typedef struct stages {
  uint32_t count, collective[4];
  uint64_t elements;
} stages;

static octavo_status take_stage(void *ctx, const octavo_gradient_stage *s) {
  stages *all = ctx;
  if (all->count == 4) return OCTAVO_NO_RESOURCE;
  all->collective[all->count++] = s->collective;
  if (s->send_count > all->elements) all->elements = s->send_count;
  return OCTAVO_OK;
}

/* Two ranks with equal gradients: the average is each one's own. */
static inline int reduce_gradients(layer *l) {
  float send[N * K], recv[N * K];
  stages all = {0, {0}, 0};
  octavo_parameter_item item = {l->parameter, 0, l->lists[OCTAVO_VERB_REDUCE], NULL};
  octavo_gradient_plan *plan = GUARDED(octavo_gradient_plan, OCTAVO_KIND_GRADIENT_PLAN);
  plan->world = 2, plan->parameters = &l->parameter, plan->count = 1;
  plan->ctx = &all, plan->stage = take_stage;
  if (!succeeded("plan_reduction", l->gradients->plan_reduction(l->session, plan))) return 0;
  if (all.elements > N * K) return 0;
  for (uint32_t stage = 0; stage < all.count; ++stage) {
    octavo_gradient_call *c = GUARDED(octavo_gradient_call, OCTAVO_KIND_GRADIENT_CALL);
    c->stage = stage, c->world = 2, c->items = &item, c->count = 1;
    c->send = send, c->recv = stage == 0 ? NULL : recv;
    if (!succeeded("run_stage", l->gradients->run_stage(l->session, c))) return 0;
    if (all.collective[stage] == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM)
      for (int i = 0; i < N * K; ++i) recv[i] = 2 * send[i];
    else if (all.collective[stage] != OCTAVO_COLLECTIVE_NONE)
      return 0;
  }
  return 1;
}

/* One step of Adam from zero moves each weight by the learning rate against its gradient's sign. */
static inline int step_optimizer(layer *l) {
  static float hyper[OCTAVO_HYPER_COUNT] = {0.25f, 0.5f, 0.5f, 0, 0, 1};
  float before[N * K];
  uint64_t bytes = 0;
  octavo_parameter_item item = {l->parameter, 0, l->lists[OCTAVO_VERB_OPTIMIZER_STEP], hyper};
  octavo_optimizer_call *c = GUARDED(octavo_optimizer_call, OCTAVO_KIND_OPTIMIZER_CALL);
  memcpy(before, l->n.w, sizeof before);
  for (int i = 0; i < N * K; ++i) /* 0 / 0 with eps 0 */
    if (l->n.dw[i] == 0) l->n.dw[i] = 1;
  c->items = &item, c->count = 1;
  if (!succeeded("workspace_bytes",
                 l->optimizer->workspace_bytes(l->session, &l->parameter, 1, &bytes)))
    return 0;
  c->workspace = aligned_alloc(256, (bytes / 256 + 1) * 256);
  if (!succeeded("optimizer_step", l->optimizer->optimizer_step(l->session, c))) return 0;
  for (int i = 0; i < N * K; ++i) before[i] += l->n.dw[i] > 0 ? -0.25f : 0.25f;
  return expect_floats("w", l->n.w, before, N * K) == 0;
}

/* Prints what was computed; the number of faults. */
static inline int run_step(layer *l) {
  if (!run_forward(l, 0) || !run_backward(l)) return 1;
  int faults = check_numbers(&l->n, 1);
  if (faults == 0) printf("y, dx, dw, db: exact\n");
  if (l->gradients == NULL)
    printf("gradients: none\n");
  else if (reduce_gradients(l) && check_numbers(&l->n, 1) == 0)
    printf("gradients: averaged over 2 ranks\n");
  else
    ++faults;
  if (l->optimizer == NULL)
    printf("optimizer: none\n");
  else if (step_optimizer(l))
    printf("optimizer: stepped\n");
  else
    ++faults;
  return faults;
}

#endif
