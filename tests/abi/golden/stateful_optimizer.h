/* stateful_optimizer.h: part of stateful.c, its optimizer and its reduction of gradients. */
#ifndef OCTAVO_TESTS_STATEFUL_OPTIMIZER_H
#define OCTAVO_TESTS_STATEFUL_OPTIMIZER_H

static octavo_status describe_optimizer(const octavo_session *s, octavo_optimizer_desc *out) {
  static const octavo_str hyper[] = {OCTAVO_STR("lr"),           OCTAVO_STR("beta1"),
                                     OCTAVO_STR("beta2"),        OCTAVO_STR("eps"),
                                     OCTAVO_STR("weight_decay"), OCTAVO_STR("grad_scale")};
  (void)s;
  out->algorithm = (octavo_str)OCTAVO_STR("adamw");
  memcpy(out->hyper, hyper, sizeof hyper);
  return OCTAVO_OK;
}

static octavo_status optimizer_workspace(const octavo_session *s, const uint32_t *parameters,
                                         uint64_t count, uint64_t *bytes) {
  const octavo_adam_step call = {.size = sizeof call, .kind = OCTAVO_KIND_ADAM_STEP};
  *bytes = 0;
  for (uint64_t i = 0; i < count; ++i)
    if (parameters[i] >= s->sealed_parameters) return OCTAVO_INVALID;
  return s->desc.kernels->workspace_bytes(s->desc.kernels_ctx, &call, bytes);
}

static octavo_tensor slot_tensor(const parameter *p, void *data) {
  return (octavo_tensor){data, p->rows, p->cols, p->cols, OCTAVO_F32, 0};
}

static octavo_status optimizer_step(const octavo_session *s, const octavo_optimizer_call *c) {
  for (uint64_t i = 0; i < c->count; ++i) {
    if (c->items[i].parameter >= s->sealed_parameters ||
        (s->parameters[c->items[i].parameter].flags & OCTAVO_PARAMETER_FROZEN) != 0)
      return OCTAVO_INVALID;
  }
  octavo_status status = OCTAVO_OK;
  for (uint64_t i = 0; status == OCTAVO_OK && i < c->count; ++i) {
    const parameter *p = &s->parameters[c->items[i].parameter];
    void *const *slots = c->items[i].slots;
    const octavo_adam_item item = {.weight = slot_tensor(p, slots[WEIGHT]),
                                   .gradient = slot_tensor(p, slots[GRADIENT]),
                                   .exp_avg = slot_tensor(p, slots[EXP_AVG]),
                                   .exp_avg_sq = slot_tensor(p, slots[EXP_AVG_SQ]),
                                   .step = slots[STEP],
                                   .hyper = c->items[i].hyper};
    const octavo_adam_step call = {.size = sizeof call,
                                   .kind = OCTAVO_KIND_ADAM_STEP,
                                   .stream = c->stream,
                                   .items = &item,
                                   .count = 1,
                                   .skip = c->skip,
                                   .workspace = c->workspace};
    status = s->adam->adam_step(s->desc.kernels_ctx, &call);
  }
  return status;
}

static octavo_status sum_of_squares(const octavo_session *s, const octavo_norm_call *c) {
  octavo_status status = OCTAVO_OK;
  for (uint64_t i = 0; status == OCTAVO_OK && i < c->count; ++i) {
    if (c->items[i].parameter >= s->sealed_parameters) return OCTAVO_INVALID;
    const parameter *p = &s->parameters[c->items[i].parameter];
    const octavo_tensor gradient = slot_tensor(p, c->items[i].slots[GRADIENT]);
    const octavo_sum call = {.size = sizeof call,
                             .kind = OCTAVO_KIND_SUM,
                             .stream = c->stream,
                             .in = &gradient,
                             .out = c->sum};
    status = s->adam->sum_of_squares(s->desc.kernels_ctx, &call);
  }
  return status;
}

/* Both directions are a copy: every slot is plain f32. */
static octavo_status move_parameter(const octavo_session *s, const octavo_parameter_call *c,
                                    int write) {
  static const uint32_t roles[] = {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_GRADIENT, OCTAVO_ROLE_EXP_AVG,
                                   OCTAVO_ROLE_EXP_AVG_SQ};
  if (c->parameter >= s->sealed_parameters) return OCTAVO_INVALID;
  const parameter *p = &s->parameters[c->parameter];
  const int frozen = (p->flags & OCTAVO_PARAMETER_FROZEN) != 0;
  for (int i = 0; i < (frozen ? 1 : STEP); ++i) {
    if (roles[i] != c->role || c->slots[i] == NULL) continue;
    octavo_tensor slot = slot_tensor(p, c->slots[i]);
    const octavo_dequantize call = {.size = sizeof call,
                                    .kind = OCTAVO_KIND_DEQUANTIZE,
                                    .stream = c->stream,
                                    .in = write ? c->plain : &slot,
                                    .out = write ? &slot : c->plain};
    return s->desc.kernels->dequantize(s->desc.kernels_ctx, &call);
  }
  return OCTAVO_UNSUPPORTED;
}
static octavo_status read_parameter(const octavo_session *s, const octavo_parameter_call *c) {
  return move_parameter(s, c, 0);
}
static octavo_status write_parameter(const octavo_session *s, const octavo_parameter_call *c) {
  return move_parameter(s, c, 1);
}

static const octavo_optimizer kOptimizer = {.size = sizeof kOptimizer,
                                            .kind = OCTAVO_KIND_OPTIMIZER,
                                            .describe = describe_optimizer,
                                            .workspace_bytes = optimizer_workspace,
                                            .optimizer_step = optimizer_step,
                                            .sum_of_squares = sum_of_squares,
                                            .read_parameter = read_parameter,
                                            .write_parameter = write_parameter};

/* Stage 0 sends all gradients of the bucket for a sum over ranks; stage 1 takes the average. */
static octavo_status plan_reduction(const octavo_session *s, octavo_gradient_plan *plan) {
  octavo_gradient_stage stage = {.size = sizeof stage,
                                 .kind = OCTAVO_KIND_GRADIENT_STAGE,
                                 .collective = OCTAVO_COLLECTIVE_ALL_REDUCE_SUM,
                                 .dtype = OCTAVO_F32};
  if (plan->world < 1) return OCTAVO_INVALID;
  for (uint64_t i = 0; i < plan->count; ++i) {
    if (plan->parameters[i] >= s->sealed_parameters) return OCTAVO_INVALID;
    const parameter *p = &s->parameters[plan->parameters[i]];
    stage.send_count += (uint64_t)(p->rows * p->cols);
  }
  stage.recv_count = stage.send_count;
  plan->state_bytes = 0;
  const octavo_status status = plan->stage(plan->ctx, &stage);
  if (status != OCTAVO_OK) return status;
  stage.collective = OCTAVO_COLLECTIVE_NONE;
  stage.send_count = stage.recv_count = 0;
  return plan->stage(plan->ctx, &stage);
}

static octavo_status run_stage(const octavo_session *s, const octavo_gradient_call *c) {
  uint64_t at = 0;
  if (c->stage > 1) return OCTAVO_INVALID;
  for (uint64_t i = 0; i < c->count; ++i) {
    if (c->items[i].parameter >= s->sealed_parameters) return OCTAVO_INVALID;
    const parameter *p = &s->parameters[c->items[i].parameter];
    const uint64_t n = (uint64_t)(p->rows * p->cols);
    const octavo_copy send = {.size = sizeof send,
                              .kind = OCTAVO_KIND_COPY,
                              .stream = c->stream,
                              .out = c->stage == 0 ? (float *)c->send + at : NULL,
                              .in = c->items[i].slots[GRADIENT],
                              .bytes = n * sizeof(float)};
    const octavo_scale_values average = {.size = sizeof average,
                                         .kind = OCTAVO_KIND_SCALE_VALUES,
                                         .stream = c->stream,
                                         .out = c->items[i].slots[GRADIENT],
                                         .in = c->stage == 0 ? NULL : (const float *)c->recv + at,
                                         .n = n,
                                         .factor = 1.0f / (float)c->world};
    const octavo_status status = c->stage == 0
                                     ? s->desc.kernels->copy(s->desc.kernels_ctx, &send)
                                     : s->msamp->scale_values(s->desc.kernels_ctx, &average);
    if (status != OCTAVO_OK) return status;
    at += n;
  }
  return OCTAVO_OK;
}

static const octavo_gradients kGradients = {.size = sizeof kGradients,
                                            .kind = OCTAVO_KIND_GRADIENTS,
                                            .plan_reduction = plan_reduction,
                                            .run_stage = run_stage};

#endif
