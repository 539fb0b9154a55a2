/* stateful.c: a backend in f32 with octavo.optimizer/2 and octavo.gradients/1, as small as they can
 * be.
 *
 * No cast and no scale: what it adds to the golden plugins is slots that the host allocates, plain
 * products in every layout, the optimizer, and the stages of a reduction. It leaves prepare_step
 * null, as a plugin from before it existed would.
 */
#include <stdlib.h>
#include <string.h>

#include "octavo/draft/gradients.h"
#include "octavo/draft/msamp.h"
#include "octavo/kernels.h"
#include "octavo/plugin.h"

enum { CAPACITY = 64 };
/* Positions in a parameter's list. A linear's list holds the weight alone. */
enum { WEIGHT, GRADIENT, EXP_AVG, EXP_AVG_SQ, STEP, POSITIONS };

typedef struct parameter {
  int64_t rows, cols;
  uint32_t flags, first_slot;
} parameter;

struct octavo_session {
  octavo_session_desc desc;
  const octavo_adam_kernels *adam;
  const octavo_msamp_kernels *msamp;
  parameter parameters[CAPACITY];
  uint32_t linears[CAPACITY];
  uint32_t num_parameters, num_linears, num_slots, sealed_parameters, sealed_linears;
  uint32_t declined; /* OCTAVO_LINEAR_DECLINES_... */
};

static octavo_status fail(const octavo_session_desc *d, octavo_status code, const char *text) {
  octavo_diagnostic message = {
      .size = sizeof message, .kind = OCTAVO_KIND_DIAGNOSTIC, .code = code};
  message.severity = OCTAVO_SEVERITY_ERROR;
  message.domain = (octavo_str)OCTAVO_STR("stateful");
  message.text = (octavo_str){text, strlen(text)};
  d->host->diagnose(d->host->ctx, &message);
  return code;
}

static void answer(octavo_verdict *v, uint32_t level, uint32_t reason, octavo_str text) {
  v->level = level;
  v->decision = reason == OCTAVO_REASON_NONE ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  v->reason = reason;
  v->text = text;
}

static octavo_status list_options(const octavo_option_sink *sink) {
  (void)sink;
  return OCTAVO_OK;
}

/* Every call that is made below, with x, y, dy and dx in this dtype; the weight is f32. */
static int has_calls(const octavo_session_desc *d, uint32_t dtype) {
  const uint32_t calls[][3] = {
      {OCTAVO_KIND_SUM, dtype, 0},           {OCTAVO_KIND_DEQUANTIZE, OCTAVO_F32, 0},
      {OCTAVO_KIND_GEMM, dtype, OCTAVO_F32}, {OCTAVO_KIND_GEMM, OCTAVO_F32, dtype},
      {OCTAVO_KIND_GEMM, dtype, dtype},      {OCTAVO_KIND_COPY, 0, 0},
      {OCTAVO_KIND_ADAM_STEP, OCTAVO_F32, 0}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    octavo_ability q = {.size = sizeof q,
                        .kind = OCTAVO_KIND_ABILITY,
                        .call = calls[i][0],
                        .dtype = calls[i][1],
                        .b_dtype = calls[i][2]};
    if (d->kernels->ability(d->kernels_ctx, &q) != OCTAVO_OK || q.decision == OCTAVO_DECLINE)
      return 0;
  }
  return 1;
}

static octavo_status check_session(const octavo_session_desc *d, const octavo_verdict_sink *sink) {
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT};
  if (has_calls(d, OCTAVO_F32))
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_REASON_NONE, (octavo_str)OCTAVO_STR("computes in f32"));
  else
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_REASON_KERNEL,
           (octavo_str)OCTAVO_STR("the kernels lack a call"));
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status open_session(const octavo_session_desc *d, octavo_session **out) {
  if (d->option_count > 0 || (d->flags & ~(uint64_t)OCTAVO_SESSION_DETERMINISTIC) != 0)
    return fail(d, OCTAVO_INVALID, "a session has no option, and the flag DETERMINISTIC alone");
  octavo_session *s = calloc(1, sizeof *s);
  if (s == NULL) return fail(d, OCTAVO_NO_RESOURCE, "no memory for a session");
  OCTAVO_TAKE(s->desc, d);
  s->declined = (has_calls(d, OCTAVO_BF16) ? 0 : OCTAVO_LINEAR_DECLINES_BF16) |
                (has_calls(d, OCTAVO_F16) ? 0 : OCTAVO_LINEAR_DECLINES_F16);
  const octavo_kernels *k = s->desc.kernels;
  s->adam = k->get_extension(s->desc.kernels_ctx, (octavo_str)OCTAVO_STR(OCTAVO_ADAM_KERNELS_ID));
  s->msamp = k->get_extension(s->desc.kernels_ctx, (octavo_str)OCTAVO_STR(OCTAVO_MSAMP_KERNELS_ID));
  *out = s;
  return OCTAVO_OK;
}

static void close_session(octavo_session *s) {
  free(s);
}

static octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d,
                                   octavo_verdict *v, uint32_t *id) {
  if (d->reserved != 0 || d->flags > (OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN) ||
      d->rows < 1 || d->cols < 1 || d->rows > (INT64_MAX >> 16) / d->cols)
    return fail(&s->desc, OCTAVO_INVALID, "a parameter has a shape and known flags");
  if (s->num_parameters == CAPACITY)
    return fail(&s->desc, OCTAVO_NO_RESOURCE, "no more than 64 parameters");
  const int has_gradient = !(d->flags & OCTAVO_PARAMETER_FROZEN);
  if (d->dtype != OCTAVO_F32 || (has_gradient && d->gradient_dtype != OCTAVO_F32)) {
    answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_DTYPE,
           (octavo_str)OCTAVO_STR("expected a float32 parameter and gradient"));
    return OCTAVO_OK;
  }
  s->parameters[s->num_parameters] = (parameter){d->rows, d->cols, d->flags, OCTAVO_NONE};
  *id = s->num_parameters++;
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_NONE, (octavo_str){NULL, 0});
  return OCTAVO_OK;
}

static octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                                uint32_t *id) {
  if (d->flags != 0 || d->weight >= s->num_parameters ||
      !(s->parameters[d->weight].flags & OCTAVO_PARAMETER_LINEAR_WEIGHT))
    return fail(&s->desc, OCTAVO_INVALID, "a linear has a weight that was added, and no flag");
  if (d->option_count > 0) {
    answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_OPTION,
           (octavo_str)OCTAVO_STR("stateful has no options"));
    return OCTAVO_OK;
  }
  if (s->num_linears == CAPACITY)
    return fail(&s->desc, OCTAVO_NO_RESOURCE, "no more than 64 linears");
  s->linears[s->num_linears] = d->weight;
  *id = s->num_linears++;
  answer(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_NONE, (octavo_str){NULL, 0});
  return OCTAVO_OK;
}

/* What the five slots of a parameter share out; shape, id and owner are each one's own. */
static const struct {
  uint32_t role, dtype, flags;
  octavo_str name;
  uint8_t step, reduce;
} kSlots[POSITIONS] = {{OCTAVO_ROLE_WEIGHT, OCTAVO_F32, OCTAVO_SLOT_NATIVE, OCTAVO_STR("weight"),
                        OCTAVO_ACCESS_UPDATE, OCTAVO_ACCESS_NONE},
                       {OCTAVO_ROLE_GRADIENT, OCTAVO_F32, OCTAVO_SLOT_NATIVE,
                        OCTAVO_STR("gradient"), OCTAVO_ACCESS_READ, OCTAVO_ACCESS_UPDATE},
                       {OCTAVO_ROLE_EXP_AVG, OCTAVO_F32, OCTAVO_SLOT_CHECKPOINT,
                        OCTAVO_STR("exp_avg"), OCTAVO_ACCESS_UPDATE, OCTAVO_ACCESS_NONE},
                       {OCTAVO_ROLE_EXP_AVG_SQ, OCTAVO_F32, OCTAVO_SLOT_CHECKPOINT,
                        OCTAVO_STR("exp_avg_sq"), OCTAVO_ACCESS_UPDATE, OCTAVO_ACCESS_NONE},
                       {OCTAVO_ROLE_COUNTER, OCTAVO_I32, OCTAVO_SLOT_CHECKPOINT, OCTAVO_STR("step"),
                        OCTAVO_ACCESS_UPDATE, OCTAVO_ACCESS_NONE}};

static octavo_status seal_parameter(octavo_session *s, uint32_t id, uint32_t *next,
                                    const octavo_slot_sink *sink) {
  parameter *p = &s->parameters[id];
  const uint32_t last = p->flags & OCTAVO_PARAMETER_FROZEN ? WEIGHT : STEP;
  octavo_status status = OCTAVO_OK;
  p->first_slot = *next;
  for (uint32_t i = WEIGHT; status == OCTAVO_OK && i <= last; ++i) {
    octavo_slot slot = {.size = sizeof slot, .kind = OCTAVO_KIND_SLOT, .id = (*next)++};
    slot.owner_kind = OCTAVO_OWNER_PARAMETER, slot.owner = id;
    slot.role = kSlots[i].role, slot.dtype = kSlots[i].dtype, slot.flags = kSlots[i].flags;
    slot.scale_slot = OCTAVO_NONE;
    slot.rows = i == STEP ? 1 : p->rows, slot.cols = i == STEP ? 1 : p->cols;
    slot.name = kSlots[i].name;
    if (i == WEIGHT)
      slot.access[OCTAVO_VERB_FORWARD] = slot.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ;
    if (last == STEP) {
      slot.access[OCTAVO_VERB_OPTIMIZER_STEP] = kSlots[i].step;
      slot.access[OCTAVO_VERB_REDUCE] = kSlots[i].reduce;
    }
    const octavo_slot_use use = {OCTAVO_OWNER_PARAMETER, id, slot.id, 0, 0, 0};
    status = sink->slot(sink->ctx, &slot);
    if (status == OCTAVO_OK) status = sink->use(sink->ctx, &use);
  }
  return status;
}

static octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  octavo_status status = OCTAVO_OK;
  uint32_t next = s->num_slots;
  for (uint32_t i = s->sealed_parameters; status == OCTAVO_OK && i < s->num_parameters; ++i)
    status = seal_parameter(s, i, &next, sink);
  for (uint32_t i = s->sealed_linears; status == OCTAVO_OK && i < s->num_linears; ++i) {
    const uint32_t slot = s->parameters[s->linears[i]].first_slot;
    const octavo_slot_use use = {OCTAVO_OWNER_LINEAR, i, slot, 0, 0, 0};
    status = sink->use(sink->ctx, &use);
  }
  if (status != OCTAVO_OK) return status;
  s->num_slots = next;
  s->sealed_parameters = s->num_parameters;
  s->sealed_linears = s->num_linears;
  return OCTAVO_OK;
}

static octavo_gemm product(void *stream, const octavo_tensor *a, const octavo_tensor *b,
                           octavo_tensor *d, void *workspace, uint32_t layout) {
  return (octavo_gemm){.size = sizeof(octavo_gemm),
                       .kind = OCTAVO_KIND_GEMM,
                       .stream = stream,
                       .a = a,
                       .b = b,
                       .d = d,
                       .workspace = workspace,
                       .layout = layout};
}

/* One row of db before it is converted, in front of the workspace of a product. */
static uint64_t sums_bytes(int64_t rows) {
  return ((uint64_t)rows * sizeof(float) + 255) / 256 * 256;
}

/* Bytes of the workspaces of forward and backward with M rows. */
static octavo_status measure(const octavo_session *s, const parameter *p, int64_t rows,
                             uint64_t *forward, uint64_t *backward) {
  octavo_tensor x = {NULL, rows, p->cols, p->cols, OCTAVO_F32, 0};
  octavo_tensor y = {NULL, rows, p->rows, p->rows, OCTAVO_F32, 0};
  octavo_tensor w = {NULL, p->rows, p->cols, p->cols, OCTAVO_F32, 0};
  const octavo_gemm products[] = {
      product(NULL, &x, &w, &y, NULL, 0), product(NULL, &y, &w, &x, NULL, OCTAVO_GEMM_B_KN),
      product(NULL, &y, &x, &w, NULL, OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN)};
  uint64_t bytes[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    const octavo_status status =
        s->desc.kernels->workspace_bytes(s->desc.kernels_ctx, &products[i], &bytes[i]);
    if (status != OCTAVO_OK) return status;
  }
  *forward = bytes[0];
  *backward = bytes[1] + bytes[2] + sums_bytes(p->rows); /* a sum is affine, a maximum is not */
  return OCTAVO_OK;
}

static octavo_extent extent(uint64_t at_256, uint64_t at_512) {
  const uint64_t step = at_512 - at_256;
  return (octavo_extent){256, step / 256, at_256 - step};
}

static octavo_status linear_plan(const octavo_session *s, uint32_t linear,
                                 octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return fail(&s->desc, OCTAVO_INVALID, "no such linear is sealed");
  const parameter *p = &s->parameters[s->linears[linear]];
  uint64_t to[2], back[2];
  octavo_status status = measure(s, p, 256, &to[0], &back[0]);
  if (status == OCTAVO_OK) status = measure(s, p, 512, &to[1], &back[1]);
  if (status != OCTAVO_OK) return status;
  out->flags = OCTAVO_LINEAR_NEEDS_X | s->declined;
  out->gradient =
      p->flags & OCTAVO_PARAMETER_FROZEN ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  out->saved = (octavo_extent){1, 0, 0};
  out->forward_workspace = extent(to[0], to[1]);
  out->backward_workspace = extent(back[0], back[1]);
  return OCTAVO_OK;
}

static int is_plain(const octavo_tensor *t) {
  return t->dtype == OCTAVO_F32 || t->dtype == OCTAVO_BF16 || t->dtype == OCTAVO_F16;
}

static octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return fail(&s->desc, OCTAVO_INVALID, "no such parameter is sealed");
  return OCTAVO_OK;
}

static octavo_tensor weight_of(const octavo_session *s, uint32_t linear, void *const *slots) {
  const parameter *p = &s->parameters[s->linears[linear]];
  return (octavo_tensor){slots[0], p->rows, p->cols, p->cols, OCTAVO_F32, 0};
}

/* What both verbs refuse, before they write. */
/* One matrix of a call, or null. */
static octavo_status check_matrix(const octavo_session *s, octavo_status before,
                                  const octavo_tensor *t, int64_t rows, int64_t cols,
                                  uint32_t declined) {
  if (before != OCTAVO_OK || t == NULL) return before;
  if ((t->dtype == OCTAVO_BF16 && (declined & OCTAVO_LINEAR_DECLINES_BF16)) ||
      (t->dtype == OCTAVO_F16 && (declined & OCTAVO_LINEAR_DECLINES_F16)))
    return fail(&s->desc, OCTAVO_UNSUPPORTED, "expected a dtype that the plan takes");
  if (t->rows != rows || t->cols != cols)
    return fail(&s->desc, OCTAVO_INVALID, "expected matrices that fit the weight [N, K]");
  if (!is_plain(t) || t->reserved != 0)
    return fail(&s->desc, OCTAVO_UNSUPPORTED,
                "expected values and reserved 0, found codes or more");
  return OCTAVO_OK;
}

static octavo_status check_linear(const octavo_session *s, uint32_t linear) {
  if (linear < s->sealed_linears) return OCTAVO_OK;
  return fail(&s->desc, OCTAVO_INVALID, "no such linear is sealed");
}

static octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  octavo_status status = check_linear(s, c->linear);
  if (status != OCTAVO_OK) return status;
  const octavo_tensor w = weight_of(s, c->linear, c->slots);
  status = check_matrix(s, status, c->x, c->x->rows, w.cols, s->declined);
  status = check_matrix(s, status, c->y, c->x->rows, w.rows, s->declined);
  status = check_matrix(s, status, c->bias, 1, w.rows, 0);
  if (status != OCTAVO_OK) return status;
  octavo_gemm call = product(c->stream, c->x, &w, c->y, c->workspace, 0);
  call.bias = c->bias;
  return s->desc.kernels->gemm(s->desc.kernels_ctx, &call);
}

/* db sums in f32 and is converted once. */
static octavo_status sum_bias(const octavo_session *s, const octavo_backward_call *c,
                              int64_t rows) {
  octavo_tensor sums = {c->workspace, 1, rows, rows, OCTAVO_F32, 0};
  const octavo_sum sum = {.size = sizeof sum,
                          .kind = OCTAVO_KIND_SUM,
                          .stream = c->stream,
                          .in = c->dy,
                          .out = sums.data};
  const octavo_dequantize convert = {.size = sizeof convert,
                                     .kind = OCTAVO_KIND_DEQUANTIZE,
                                     .stream = c->stream,
                                     .in = &sums,
                                     .out = c->db,
                                     .accumulate = !(c->flags & OCTAVO_BACKWARD_OVERWRITE)};
  const octavo_status status = s->desc.kernels->sum_rows(s->desc.kernels_ctx, &sum);
  if (status != OCTAVO_OK) return status;
  return s->desc.kernels->dequantize(s->desc.kernels_ctx, &convert);
}

static octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  octavo_status status = check_linear(s, c->linear);
  if (status != OCTAVO_OK) return status;
  const octavo_kernels *k = s->desc.kernels;
  const octavo_tensor w = weight_of(s, c->linear, c->slots);
  const int is_frozen = (s->parameters[s->linears[c->linear]].flags & OCTAVO_PARAMETER_FROZEN) != 0;
  const int wants_dw = c->dw != NULL && !is_frozen && !(c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  status = check_matrix(s, status, c->dy, c->dy->rows, w.rows, s->declined);
  status = check_matrix(s, status, c->x, c->dy->rows, w.cols, s->declined);
  status = check_matrix(s, status, c->dx, c->dy->rows, w.cols, s->declined);
  status = check_matrix(s, status, wants_dw ? c->dw : NULL, w.rows, w.cols, 0);
  status = check_matrix(s, status, c->db, 1, w.rows, 0);
  if (status != OCTAVO_OK) return status;
  void *workspace = (uint8_t *)c->workspace + sums_bytes(w.rows);
  if (c->dx != NULL) {
    const octavo_gemm call = product(c->stream, c->dy, &w, c->dx, workspace, OCTAVO_GEMM_B_KN);
    status = k->gemm(s->desc.kernels_ctx, &call);
  }
  if (status == OCTAVO_OK && wants_dw) {
    octavo_gemm call =
        product(c->stream, c->dy, c->x, c->dw, workspace, OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN);
    call.accumulate = !(c->flags & OCTAVO_BACKWARD_OVERWRITE);
    status = k->gemm(s->desc.kernels_ctx, &call);
  }
  return status == OCTAVO_OK && c->db != NULL ? sum_bias(s, c, w.rows) : status;
}

static octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  (void)s, (void)c;
  return OCTAVO_OK;
}

#include "stateful_optimizer.h"

static const octavo_backend kBackend = {
    sizeof kBackend, OCTAVO_KIND_BACKEND, list_options, check_session, open_session,
    add_parameter,   add_linear,          seal,         linear_plan,   quantize_weight,
    linear_forward,  linear_backward,     end_step,     close_session};

static int is(octavo_str id, octavo_str known) {
  return id.size == known.size && memcmp(id.data, known.data, known.size) == 0;
}

static const void *get_interface(octavo_str id) {
  if (is(id, (octavo_str)OCTAVO_STR(OCTAVO_BACKEND_ID))) return &kBackend;
  if (is(id, (octavo_str)OCTAVO_STR(OCTAVO_OPTIMIZER_ID))) return &kOptimizer;
  return is(id, (octavo_str)OCTAVO_STR(OCTAVO_GRADIENTS_ID)) ? &kGradients : NULL;
}

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof plugin,          OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
      OCTAVO_STR("stateful"), OCTAVO_STR("1.0.0"), get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}
