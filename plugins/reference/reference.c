/* The smallest useful backend: E4M3 weights and activations, E5M2 gradients, per-tensor current
 * scaling, no cache and no state but the nonfinite flag. Read it first when you write a backend.
 *
 * What must not go wrong: host code here never reads slot or tensor memory. It only passes
 * addresses to kernels, which may run later and on another device.
 */
#include <stdlib.h>
#include <string.h>

#include "octavo/kernels.h"
#include "octavo/plugin.h"

typedef struct parameter {
  octavo_parameter_desc desc;
  uint32_t slot; /* of the native weight, once sealed */
} parameter;

struct octavo_session {
  octavo_session_desc desc;
  parameter *parameters;
  uint32_t *linears; /* weight of each */
  uint32_t parameter_count, linear_count;
  uint32_t sealed_parameters, sealed_linears, slot_count, nonfinite_slot;
};

/* Positions in a linear's pointer list, and in the session's. */
enum { LINEAR_WEIGHT = 0, LINEAR_NONFINITE = 1 };
enum { SESSION_NONFINITE = 0 };

/* Which kernel operands a call keeps in its workspace; sizes in elements of M, N, K. */
typedef struct buffers {
  octavo_tensor x, x_t, w, w_t, dy, dy_t; /* codes */
  octavo_scale x_scale_inv, w_scale_inv, dy_scale_inv;
  octavo_tensor column_sums; /* f32 [1, N] */
  void *kernel;              /* workspace of one kernel at a time */
} buffers;

static octavo_status refuse(const octavo_host *host, octavo_status status, const char *text) {
  octavo_diagnostic d = {sizeof d,
                         OCTAVO_KIND_DIAGNOSTIC,
                         status,
                         OCTAVO_SEVERITY_ERROR,
                         OCTAVO_STR("reference"),
                         {text, strlen(text)},
                         NULL,
                         NULL,
                         0};
  host->diagnose(host->ctx, &d);
  return status;
}

static void answer(octavo_verdict *v, uint32_t level, uint32_t decision, uint32_t reason,
                   const char *text) {
  v->level = level;
  v->decision = decision;
  v->reason = reason;
  v->text.data = text;
  v->text.size = strlen(text);
}

static octavo_status list_options(const octavo_option_sink *sink) {
  (void)sink; /* nothing can be chosen */
  return OCTAVO_OK;
}

static octavo_status check_session(const octavo_session_desc *desc,
                                   const octavo_verdict_sink *sink) {
  const uint64_t dtypes = OCTAVO_DTYPE_BIT(OCTAVO_E4M3FN) | OCTAVO_DTYPE_BIT(OCTAVO_E5M2);
  octavo_verdict v = {sizeof v, OCTAVO_KIND_VERDICT, 0, 0, 0, 0, {0}, {0}, {0}};
  if ((desc->caps->dtypes & dtypes) != dtypes)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           "the kernels lack float8_e4m3fn or float8_e5m2");
  else if (desc->caps->alignment > 1)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_SHAPE,
           "the kernels need aligned shapes, and this backend does not pad; te does");
  else if (desc->caps->flags & OCTAVO_CAPS_EMULATED)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT_EMULATED, OCTAVO_REASON_NONE,
           "per-tensor current scaling; FP8 arithmetic is emulated exactly, without FP8 hardware");
  else
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
           "per-tensor current scaling");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  octavo_session *s = calloc(1, sizeof *s);
  if (s == NULL) return refuse(desc->host, OCTAVO_RESOURCE, "out of memory");
  s->desc = *desc;
  s->desc.options = NULL; /* valid during this call only */
  s->desc.option_count = 0;
  *out = s;
  return OCTAVO_OK;
}

static void close_session(octavo_session *s) {
  if (s == NULL) return;
  free(s->parameters);
  free(s->linears);
  free(s);
}

static octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d,
                                   octavo_verdict *verdict, uint32_t *id) {
  const uint32_t known = OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN;
  if (d->reserved != 0 || (d->flags & ~known) != 0)
    return refuse(s->desc.host, OCTAVO_INVALID,
                  "add_parameter: expected reserved 0 and known flags only");
  if (d->rows < 1 || d->cols < 1)
    return refuse(s->desc.host, OCTAVO_INVALID, "add_parameter: expected rows and cols >= 1");
  if (d->dtype != OCTAVO_F32 && d->dtype != OCTAVO_BF16 && d->dtype != OCTAVO_F16) {
    answer(verdict, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           "expected a weight in f32, bf16 or f16");
    return OCTAVO_OK;
  }
  parameter *grown = realloc(s->parameters, (s->parameter_count + 1) * sizeof *grown);
  if (grown == NULL) return refuse(s->desc.host, OCTAVO_RESOURCE, "out of memory");
  s->parameters = grown;
  grown[s->parameter_count].desc = *d;
  *id = s->parameter_count++;
  answer(verdict, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE, "native weight");
  return OCTAVO_OK;
}

static octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d,
                                octavo_verdict *verdict, uint32_t *id) {
  if (d->flags != 0) return refuse(s->desc.host, OCTAVO_INVALID, "add_linear: expected flags 0");
  if (d->weight >= s->parameter_count ||
      !(s->parameters[d->weight].desc.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT))
    return refuse(s->desc.host, OCTAVO_INVALID,
                  "add_linear: expected the id of a parameter added as LINEAR_WEIGHT");
  uint32_t *grown = realloc(s->linears, (s->linear_count + 1) * sizeof *grown);
  if (grown == NULL) return refuse(s->desc.host, OCTAVO_RESOURCE, "out of memory");
  s->linears = grown;
  grown[s->linear_count] = d->weight;
  *id = s->linear_count++;
  answer(verdict, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
         "x and w in float8_e4m3fn, dy in float8_e5m2, current scaling");
  return OCTAVO_OK;
}

static octavo_slot blank_slot(uint32_t id, uint32_t role, uint32_t dtype, int64_t rows,
                              int64_t cols) {
  octavo_slot slot;
  memset(&slot, 0, sizeof slot);
  slot.size = sizeof slot;
  slot.kind = OCTAVO_KIND_SLOT;
  slot.id = id;
  slot.role = role;
  slot.dtype = dtype;
  slot.scale_slot = OCTAVO_NONE;
  slot.rows = rows;
  slot.cols = cols;
  return slot;
}

static octavo_status emit_use(const octavo_slot_sink *sink, uint32_t kind, uint32_t owner,
                              uint32_t slot) {
  const octavo_slot_use use = {kind, owner, slot, 0, 0, 0};
  return sink->use(sink->ctx, &use);
}

static octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  uint32_t next = s->slot_count; /* committed at the end: a failed seal changes nothing */
  uint32_t nonfinite = s->nonfinite_slot;
  octavo_status status = OCTAVO_OK;
  if (next == 0) {
    octavo_slot slot = blank_slot(next, OCTAVO_ROLE_NONFINITE, OCTAVO_F32, 1, 1);
    slot.owner_kind = OCTAVO_OWNER_SESSION;
    slot.flags = OCTAVO_SLOT_REDUCE;
    slot.combine = OCTAVO_COMBINE_MAX;
    slot.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_ACCUMULATE;
    slot.access[OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE;
    slot.access[OCTAVO_VERB_OPTIMIZER_STEP] = OCTAVO_ACCESS_READ;
    slot.name.data = "nonfinite";
    slot.name.size = 9;
    nonfinite = next++;
    status = sink->slot(sink->ctx, &slot);
    if (status == OCTAVO_OK) status = emit_use(sink, OCTAVO_OWNER_SESSION, 0, nonfinite);
  }
  for (uint32_t p = s->sealed_parameters; p < s->parameter_count && status == OCTAVO_OK; ++p) {
    const octavo_parameter_desc *d = &s->parameters[p].desc;
    octavo_slot slot = blank_slot(next, OCTAVO_ROLE_WEIGHT, d->dtype, d->rows, d->cols);
    slot.owner_kind = OCTAVO_OWNER_PARAMETER;
    slot.owner = p;
    slot.flags = OCTAVO_SLOT_NATIVE;
    slot.access[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_READ;
    slot.access[OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ;
    slot.name.data = "weight";
    slot.name.size = 6;
    s->parameters[p].slot = next++;
    status = sink->slot(sink->ctx, &slot);
    if (status == OCTAVO_OK)
      status = emit_use(sink, OCTAVO_OWNER_PARAMETER, p, s->parameters[p].slot);
  }
  for (uint32_t l = s->sealed_linears; l < s->linear_count && status == OCTAVO_OK; ++l) {
    status = emit_use(sink, OCTAVO_OWNER_LINEAR, l, s->parameters[s->linears[l]].slot);
    if (status == OCTAVO_OK) status = emit_use(sink, OCTAVO_OWNER_LINEAR, l, nonfinite);
  }
  if (status != OCTAVO_OK) return status;
  s->slot_count = next;
  s->nonfinite_slot = nonfinite;
  s->sealed_parameters = s->parameter_count;
  s->sealed_linears = s->linear_count;
  return OCTAVO_OK;
}

/* Hands out workspace in aligned pieces; with base null it only measures. */
typedef struct carver {
  char *base;
  uint64_t used;
} carver;

static void *carve(carver *c, int64_t bytes) {
  const uint64_t at = (c->used + 255) & ~UINT64_C(255);
  c->used = at + (uint64_t)bytes;
  return c->base == NULL ? NULL : c->base + at;
}

static octavo_tensor carve_codes(carver *c, int64_t rows, int64_t cols, uint32_t dtype) {
  const octavo_tensor t = {carve(c, rows * cols), rows, cols, cols, dtype, 0};
  return t;
}

static octavo_scale carve_scale(carver *c) {
  const octavo_scale s = {carve(c, sizeof(float)), 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
  return s;
}

static octavo_gemm gemm_of(const octavo_tensor *a, const octavo_scale *a_scale_inv,
                           const octavo_tensor *b, const octavo_scale *b_scale_inv,
                           octavo_tensor *d, void *stream, void *workspace) {
  octavo_gemm g;
  memset(&g, 0, sizeof g);
  g.size = sizeof g;
  g.kind = OCTAVO_KIND_GEMM;
  g.stream = stream;
  g.a = a;
  g.b = b;
  g.d = d;
  g.a_scale_inv = a_scale_inv;
  g.b_scale_inv = b_scale_inv;
  g.workspace = workspace;
  return g;
}

static uint64_t gemm_bytes(const octavo_session *s, int64_t m, int64_t n, int64_t k) {
  const octavo_tensor a = {NULL, m, k, k, OCTAVO_E4M3FN, 0};
  const octavo_tensor b = {NULL, n, k, k, OCTAVO_E4M3FN, 0};
  octavo_tensor d = {NULL, m, n, n, OCTAVO_F32, 0};
  octavo_gemm g = gemm_of(&a, NULL, &b, NULL, &d, NULL, NULL);
  uint64_t bytes = 0;
  s->desc.kernels->workspace_bytes(s->desc.kernels_ctx, &g, &bytes);
  return bytes;
}

static buffers forward_buffers(const octavo_session *s, carver *c, int64_t m, int64_t n,
                               int64_t k) {
  buffers b;
  memset(&b, 0, sizeof b);
  b.x_scale_inv = carve_scale(c);
  b.w_scale_inv = carve_scale(c);
  b.w = carve_codes(c, n, k, OCTAVO_E4M3FN);
  b.x = carve_codes(c, m, k, OCTAVO_E4M3FN);
  b.kernel = carve(c, c->base == NULL ? (int64_t)gemm_bytes(s, m, n, k) : 0);
  return b;
}

static buffers backward_buffers(const octavo_session *s, carver *c, int64_t m, int64_t n,
                                int64_t k) {
  buffers b;
  memset(&b, 0, sizeof b);
  b.x_scale_inv = carve_scale(c);
  b.w_scale_inv = carve_scale(c);
  b.dy_scale_inv = carve_scale(c);
  b.column_sums.data = carve(c, n * (int64_t)sizeof(float));
  b.column_sums.rows = 1;
  b.column_sums.cols = b.column_sums.stride = n;
  b.column_sums.dtype = OCTAVO_F32;
  b.w_t = carve_codes(c, k, n, OCTAVO_E4M3FN);
  b.x_t = carve_codes(c, k, m, OCTAVO_E4M3FN);
  b.dy = carve_codes(c, m, n, OCTAVO_E5M2);
  b.dy_t = carve_codes(c, n, m, OCTAVO_E5M2);
  if (c->base == NULL) {
    const uint64_t dgrad = gemm_bytes(s, m, k, n), wgrad = gemm_bytes(s, n, k, m);
    carve(c, (int64_t)(dgrad > wgrad ? dgrad : wgrad));
  } else {
    b.kernel = carve(c, 0);
  }
  return b;
}

/* Sizes are affine over multiples of 64 rows, up to the alignment of the pieces. */
static octavo_extent extent_of(const octavo_session *s, int64_t n, int64_t k,
                               buffers (*lay_out)(const octavo_session *, carver *, int64_t,
                                                  int64_t, int64_t)) {
  carver one = {NULL, 0}, two = {NULL, 0};
  lay_out(s, &one, 256, n, k);
  lay_out(s, &two, 512, n, k);
  const uint64_t slope = (two.used - one.used) / 256;
  const octavo_extent e = {256, slope, one.used - slope * 256};
  return e;
}

static octavo_status linear_plan(const octavo_session *s, uint32_t linear,
                                 octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return refuse(s->desc.host, OCTAVO_INVALID, "linear_plan: expected a sealed linear");
  const octavo_parameter_desc *w = &s->parameters[s->linears[linear]].desc;
  octavo_linear_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.size = out->size;
  plan.kind = out->kind;
  plan.flags = OCTAVO_LINEAR_NEEDS_X;
  plan.gradient =
      (w->flags & OCTAVO_PARAMETER_FROZEN) ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  plan.saved.row_multiple = 1; /* nothing is saved: backward quantizes x again, to the same codes */
  plan.forward_workspace = extent_of(s, w->rows, w->cols, forward_buffers);
  plan.backward_workspace = extent_of(s, w->rows, w->cols, backward_buffers);
  memcpy(out, &plan, out->size < sizeof plan ? out->size : sizeof plan);
  return OCTAVO_OK;
}

static octavo_status quantize(const octavo_session *s, const octavo_tensor *in, octavo_tensor *out,
                              octavo_tensor *out_t, const octavo_scale *scale_inv, float *nonfinite,
                              void *stream) {
  const uint32_t dtype = out != NULL ? out->dtype : out_t->dtype;
  octavo_quantize q;
  memset(&q, 0, sizeof q);
  q.size = sizeof q;
  q.kind = OCTAVO_KIND_QUANTIZE;
  q.stream = stream;
  q.in = in;
  q.out = out;
  q.out_t = out_t;
  q.out_scale_inv = scale_inv;
  q.nonfinite = nonfinite;
  q.format_max = dtype == OCTAVO_E5M2 ? 57344.0f : 448.0f;
  q.rule = OCTAVO_RULE_QUOTIENT;
  return s->desc.kernels->quantize(s->desc.kernels_ctx, &q);
}

static octavo_tensor weight_of(const octavo_session *s, uint32_t linear, void *const *slots) {
  const octavo_parameter_desc *d = &s->parameters[s->linears[linear]].desc;
  const octavo_tensor w = {slots[LINEAR_WEIGHT], d->rows, d->cols, d->cols, d->dtype, 0};
  return w;
}

static octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  (void)s, (void)c; /* no cache to refresh */
  return OCTAVO_OK;
}

static octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  if (c->linear >= s->sealed_linears) return OCTAVO_INVALID;
  const octavo_tensor w = weight_of(s, c->linear, c->slots);
  carver pieces = {c->workspace, 0};
  buffers b = forward_buffers(s, &pieces, c->x->rows, w.rows, w.cols);
  octavo_status status = quantize(s, c->x, &b.x, NULL, &b.x_scale_inv, NULL, c->stream);
  if (status == OCTAVO_OK) status = quantize(s, &w, &b.w, NULL, &b.w_scale_inv, NULL, c->stream);
  if (status != OCTAVO_OK) return status;
  octavo_gemm fprop =
      gemm_of(&b.x, &b.x_scale_inv, &b.w, &b.w_scale_inv, c->y, c->stream, b.kernel);
  fprop.bias = c->bias;
  return s->desc.kernels->gemm(s->desc.kernels_ctx, &fprop);
}

/* db: column sums of dy before it is quantized; through f32, since db may have another dtype. */
static octavo_status bias_gradient(const octavo_session *s, const octavo_backward_call *c,
                                   buffers *b, uint32_t accumulate) {
  octavo_sum sum = {sizeof sum, OCTAVO_KIND_SUM, c->stream, c->dy, NULL, b->column_sums.data, 0, 0};
  octavo_dequantize add = {
      sizeof add, OCTAVO_KIND_DEQUANTIZE, c->stream, &b->column_sums, NULL, c->db, accumulate, 0};
  const octavo_status status = s->desc.kernels->sum_rows(s->desc.kernels_ctx, &sum);
  return status != OCTAVO_OK ? status : s->desc.kernels->dequantize(s->desc.kernels_ctx, &add);
}

static octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (c->linear >= s->sealed_linears) return OCTAVO_INVALID;
  const octavo_tensor w = weight_of(s, c->linear, c->slots);
  const int frozen =
      (s->parameters[s->linears[c->linear]].desc.flags & OCTAVO_PARAMETER_FROZEN) != 0;
  const int weight_wanted = c->dw != NULL && !frozen && !(c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  const uint32_t accumulate = (c->flags & OCTAVO_BACKWARD_OVERWRITE) ? 0 : 1;
  carver pieces = {c->workspace, 0};
  buffers b = backward_buffers(s, &pieces, c->dy->rows, w.rows, w.cols);
  octavo_status status = quantize(s, c->dy, &b.dy, weight_wanted ? &b.dy_t : NULL, &b.dy_scale_inv,
                                  c->slots[LINEAR_NONFINITE], c->stream);
  if (status == OCTAVO_OK && c->dx != NULL) {
    status = quantize(s, &w, NULL, &b.w_t, &b.w_scale_inv, NULL, c->stream);
    const octavo_gemm dgrad =
        gemm_of(&b.dy, &b.dy_scale_inv, &b.w_t, &b.w_scale_inv, c->dx, c->stream, b.kernel);
    if (status == OCTAVO_OK) status = s->desc.kernels->gemm(s->desc.kernels_ctx, &dgrad);
  }
  if (status == OCTAVO_OK && weight_wanted) {
    status = quantize(s, c->x, NULL, &b.x_t, &b.x_scale_inv, NULL, c->stream);
    octavo_gemm wgrad =
        gemm_of(&b.dy_t, &b.dy_scale_inv, &b.x_t, &b.x_scale_inv, c->dw, c->stream, b.kernel);
    wgrad.accumulate = accumulate;
    if (status == OCTAVO_OK) status = s->desc.kernels->gemm(s->desc.kernels_ctx, &wgrad);
  }
  if (status == OCTAVO_OK && c->db != NULL) status = bias_gradient(s, c, &b, accumulate);
  return status;
}

static octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  const octavo_copy clear = {sizeof clear, OCTAVO_KIND_COPY, c->stream, c->slots[SESSION_NONFINITE],
                             NULL,         sizeof(float)};
  return s->desc.kernels->copy(s->desc.kernels_ctx, &clear);
}

static const octavo_backend backend = {
    sizeof backend, OCTAVO_KIND_BACKEND, list_options, check_session, open_session,
    add_parameter,  add_linear,          seal,         linear_plan,   quantize_weight,
    linear_forward, linear_backward,     end_step,     close_session};

static const void *get_interface(octavo_str id) {
  const octavo_str known = OCTAVO_STR(OCTAVO_BACKEND_ID);
  return id.size == known.size && memcmp(id.data, known.data, id.size) == 0 ? &backend : NULL;
}

octavo_status octavo_plugin_query_v1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof plugin,           OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
      OCTAVO_STR("reference"), OCTAVO_STR("0.1.0"), get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_VERSION;
  *out = &plugin;
  return OCTAVO_OK;
}
