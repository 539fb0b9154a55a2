/* minimal.c: the smallest complete backend, FP8 linear layers with current scaling and no state.
 *
 * It computes nothing itself: it describes memory, then tells the kernels which matrix to cast and
 * which to multiply. Every pointer may be a device address, so it never reads one.
 */
#include <stdlib.h>
#include <string.h>

#include "octavo/kernels.h"
#include "octavo/plugin.h"

typedef struct parameter {
  int64_t rows, cols; /* N, K */
  uint32_t dtype, flags, slot;
} parameter;

struct octavo_session {
  octavo_session_desc desc; /* the kernels and the host */
  parameter *parameters;
  uint32_t *linears; /* the parameter that each one multiplies by */
  uint32_t num_parameters, num_linears, num_slots, sealed_parameters, sealed_linears;
  uint32_t declined; /* OCTAVO_LINEAR_DECLINES_... */
};

enum { kWeight = 0, kNonfinite = 1 }; /* positions in a linear's pointer list */

#define TEXT(literal) ((octavo_str)OCTAVO_STR(literal))

static octavo_status fail(const octavo_session_desc *d, octavo_status code, const char *text) {
  octavo_diagnostic message = {.size = sizeof message, .kind = OCTAVO_KIND_DIAGNOSTIC};
  message.code = code, message.severity = OCTAVO_SEVERITY_ERROR;
  message.domain = TEXT("minimal"), message.text = (octavo_str){text, strlen(text)};
  d->host->diagnose(d->host->ctx, &message);
  return code;
}

static int is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

static void decide(octavo_verdict *v, uint32_t level, uint32_t reason, octavo_str text) {
  v->level = level;
  v->decision = reason == OCTAVO_REASON_NONE ? OCTAVO_ACCEPT : OCTAVO_DECLINE;
  v->reason = reason;
  v->text = text;
}

/* The kernels' answer about every call that is made below, with x and dy of this dtype. */
static uint32_t ask_kernels(const octavo_session_desc *d, uint32_t dtype) {
  const uint32_t calls[][3] = {{OCTAVO_KIND_QUANTIZE, OCTAVO_E4M3FN, 0},
                               {OCTAVO_KIND_QUANTIZE, OCTAVO_E5M2, 0},
                               {OCTAVO_KIND_GEMM, OCTAVO_E4M3FN, OCTAVO_E4M3FN},
                               {OCTAVO_KIND_GEMM, OCTAVO_E5M2, OCTAVO_E4M3FN},
                               {OCTAVO_KIND_SUM, dtype, 0},
                               {OCTAVO_KIND_DEQUANTIZE, OCTAVO_F32, 0},
                               {OCTAVO_KIND_COPY, 0, 0}};
  uint32_t least = OCTAVO_ACCEPT;
  for (size_t i = 0; i < sizeof calls / sizeof *calls && least != OCTAVO_DECLINE; i++) {
    octavo_ability q = {.size = sizeof q,
                        .kind = OCTAVO_KIND_ABILITY,
                        .call = calls[i][0],
                        .dtype = calls[i][1],
                        .b_dtype = calls[i][2]};
    if (d->kernels->ability(d->kernels_ctx, &q) != OCTAVO_OK) q.decision = OCTAVO_DECLINE;
    if (q.decision != OCTAVO_ACCEPT) least = q.decision;
  }
  return least;
}

/* x, y, dy and dx of these dtypes are declined: OCTAVO_LINEAR_DECLINES_... */
static uint32_t declined_by(const octavo_session_desc *d) {
  return (ask_kernels(d, OCTAVO_BF16) ? 0 : OCTAVO_LINEAR_DECLINES_BF16) |
         (ask_kernels(d, OCTAVO_F16) ? 0 : OCTAVO_LINEAR_DECLINES_F16);
}

static octavo_status check_session(const octavo_session_desc *d, const octavo_verdict_sink *sink) {
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT};
  const uint32_t decision = ask_kernels(d, OCTAVO_F32);
  if (decision == OCTAVO_DECLINE)
    decide(&v, OCTAVO_LEVEL_DEVICE, OCTAVO_REASON_KERNEL,
           TEXT("these kernels lack a cast, a product or a sum of minimal"));
  else if (d->caps->alignment > 1)
    decide(&v, OCTAVO_LEVEL_DEVICE, OCTAVO_REASON_SHAPE,
           TEXT("these kernels need padded matrices, and minimal pads nothing"));
  else
    decide(&v, OCTAVO_LEVEL_SESSION, OCTAVO_REASON_NONE,
           TEXT("x, w and dy are cast with current scaling"));
  if (v.decision == OCTAVO_ACCEPT) v.decision = decision;
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status list_options(const octavo_option_sink *sink) {
  (void)sink; /* none: [fp8.minimal] has no key */
  return OCTAVO_OK;
}

static octavo_status open_session(const octavo_session_desc *d, octavo_session **out) {
  if (d->option_count > 0 || d->flags & ~(uint64_t)OCTAVO_SESSION_DETERMINISTIC)
    return fail(d, OCTAVO_INVALID, "open_session: expected no options and no flag but 1");
  octavo_session *s = calloc(1, sizeof *s);
  if (!s) return fail(d, OCTAVO_NO_RESOURCE, "open_session: no memory");
  s->declined = declined_by(d);
  OCTAVO_TAKE(s->desc, d); /* a newer host has a longer one, an older host a shorter one */
  *out = s;
  return OCTAVO_OK;
}

static void close_session(octavo_session *s) {
  free(s->parameters);
  free(s->linears);
  free(s);
}

static octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d,
                                   octavo_verdict *v, uint32_t *id) {
  if (d->reserved != 0 || d->flags > (OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN))
    return fail(&s->desc, OCTAVO_INVALID, "add_parameter: expected flags 0..3 and reserved 0");
  if (d->rows < 1 || d->cols < 1 || d->rows > (INT64_MAX >> 16) / d->cols)
    return fail(&s->desc, OCTAVO_INVALID, "add_parameter: expected rows and cols from 1 on");
  if (!is_plain(d->dtype) ||
      (!(d->flags & OCTAVO_PARAMETER_FROZEN) && !is_plain(d->gradient_dtype))) {
    decide(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_DTYPE,
           TEXT("expected a parameter and gradient of float32, bfloat16 or float16"));
    return OCTAVO_OK; /* declined: no id is used up and nothing is kept */
  }
  parameter *grown = realloc(s->parameters, (s->num_parameters + 1) * sizeof *grown);
  if (!grown) return fail(&s->desc, OCTAVO_NO_RESOURCE, "add_parameter: no memory");
  s->parameters = grown;
  grown[s->num_parameters] = (parameter){d->rows, d->cols, d->dtype, d->flags, OCTAVO_NONE};
  *id = s->num_parameters++;
  decide(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_NONE, (octavo_str){NULL, 0});
  return OCTAVO_OK;
}

static octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                                uint32_t *id) {
  if (d->flags != 0) return fail(&s->desc, OCTAVO_INVALID, "add_linear: expected flags 0");
  if (d->weight >= s->num_parameters ||
      !(s->parameters[d->weight].flags & OCTAVO_PARAMETER_LINEAR_WEIGHT))
    return fail(&s->desc, OCTAVO_INVALID, "add_linear: expected the id of a LINEAR_WEIGHT");
  if (d->option_count > 0) {
    decide(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_OPTION, TEXT("minimal has no options"));
    return OCTAVO_OK;
  }
  uint32_t *grown = realloc(s->linears, (s->num_linears + 1) * sizeof *grown);
  if (!grown) return fail(&s->desc, OCTAVO_NO_RESOURCE, "add_linear: no memory");
  s->linears = grown;
  grown[s->num_linears] = d->weight;
  *id = s->num_linears++;
  decide(v, OCTAVO_LEVEL_LAYER, OCTAVO_REASON_NONE, (octavo_str){NULL, 0});
  return OCTAVO_OK;
}

/* [seal] */
/* The overflow flag of casts: shared by all linears, combined over ranks by the host. */
static const octavo_slot kNonfiniteSlot = {
    .size = sizeof(octavo_slot),
    .kind = OCTAVO_KIND_SLOT,
    .owner_kind = OCTAVO_OWNER_SESSION,
    .role = OCTAVO_ROLE_NONFINITE,
    .dtype = OCTAVO_F32,
    .flags = OCTAVO_SLOT_REDUCE,
    .combine = OCTAVO_COMBINE_MAX,
    .scale_slot = OCTAVO_NONE,
    .rows = 1,
    .cols = 1,
    .access = {[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_ACCUMULATE,
               [OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_ACCUMULATE,
               [OCTAVO_VERB_END_STEP] = OCTAVO_ACCESS_WRITE},
    .name = OCTAVO_STR("nonfinite")};

/* The host's own weight, read in place; id, owner, dtype and shape are each parameter's. */
static const octavo_slot kWeightSlot = {
    .size = sizeof(octavo_slot),
    .kind = OCTAVO_KIND_SLOT,
    .owner_kind = OCTAVO_OWNER_PARAMETER,
    .role = OCTAVO_ROLE_WEIGHT,
    .flags = OCTAVO_SLOT_NATIVE,
    .shard = OCTAVO_SHARD_WHOLE, /* one scale for all rows */
    .scale_slot = OCTAVO_NONE,
    .access =
        {[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_READ, [OCTAVO_VERB_BACKWARD] = OCTAVO_ACCESS_READ},
    .name = OCTAVO_STR("weight")};

static octavo_status emit_use(const octavo_slot_sink *sink, uint32_t kind, uint32_t owner,
                              uint32_t slot) {
  const octavo_slot_use use = {kind, owner, slot, 0, 0, 0};
  return sink->use(sink->ctx, &use);
}

static octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  octavo_status status = OCTAVO_OK;
  uint32_t next = s->num_slots;
  if (next == 0) { /* the first seal: slot 0 is `nonfinite` */
    status = sink->slot(sink->ctx, &kNonfiniteSlot);
    if (!status) status = emit_use(sink, OCTAVO_OWNER_SESSION, 0, next++);
  }
  for (uint32_t i = s->sealed_parameters; !status && i < s->num_parameters; ++i) {
    octavo_slot slot = kWeightSlot;
    slot.id = s->parameters[i].slot = next++;
    slot.owner = i, slot.dtype = s->parameters[i].dtype;
    slot.rows = s->parameters[i].rows, slot.cols = s->parameters[i].cols;
    status = sink->slot(sink->ctx, &slot);
    if (!status) status = emit_use(sink, OCTAVO_OWNER_PARAMETER, i, slot.id);
  }
  for (uint32_t i = s->sealed_linears; !status && i < s->num_linears; ++i) {
    status = emit_use(sink, OCTAVO_OWNER_LINEAR, i, s->parameters[s->linears[i]].slot);
    if (!status) status = emit_use(sink, OCTAVO_OWNER_LINEAR, i, 0);
  }
  if (status) return status; /* as if seal had not been called */
  s->num_slots = next;
  s->sealed_parameters = s->num_parameters;
  s->sealed_linears = s->num_linears;
  return OCTAVO_OK;
}
/* [/seal] */

/* One verb under way. Without `base` nothing runs: the pass only measures the workspace. */
typedef struct pass {
  const octavo_session_desc *desc;
  void *stream;
  uint8_t *base;
  uint64_t used, kernels; /* bytes taken for codes and scales, and asked for by kernels */
  octavo_status status;
} pass;

static int declines(const octavo_session *s, uint32_t dtype) {
  return (dtype == OCTAVO_BF16 && s->declined & OCTAVO_LINEAR_DECLINES_BF16) ||
         (dtype == OCTAVO_F16 && s->declined & OCTAVO_LINEAR_DECLINES_F16);
}

/* What both verbs refuse, before they write. `all`: x, y or dy, dx, bias or db, dw; null: none. */
static pass begin(const octavo_session *s, uint32_t linear, int64_t m, void *stream,
                  void *workspace, const octavo_tensor *const all[5]) {
  pass p = {.desc = &s->desc, .stream = stream, .base = workspace};
  if (linear >= s->sealed_linears)
    p.status = fail(&s->desc, OCTAVO_INVALID, "expected a sealed linear");
  const parameter *w = p.status ? NULL : &s->parameters[s->linears[linear]];
  for (int i = 0; !p.status && i < (w->flags & OCTAVO_PARAMETER_FROZEN ? 4 : 5); ++i) {
    const int64_t rows = i < 3 ? m : i < 4 ? 1 : w->rows, cols = i % 2 ? w->rows : w->cols;
    if (all[i] && (all[i]->rows != rows || all[i]->cols != cols || all[i]->stride < cols))
      p.status = fail(&s->desc, OCTAVO_INVALID, "expected matrices that fit the weight [N, K]");
    else if (all[i] && (!is_plain(all[i]->dtype) || all[i]->reserved ||
                        (i < 3 && declines(s, all[i]->dtype))))
      p.status = fail(&s->desc, OCTAVO_UNSUPPORTED, "expected f32, bf16 or f16, and reserved 0");
  }
  return p;
}

static void *take(pass *p, int64_t bytes) {
  void *at = p->base ? p->base + p->used : NULL;
  p->used += ((uint64_t)bytes + 255) / 256 * 256; /* blocks start at multiples of 256 */
  return at;
}

static octavo_tensor take_codes(pass *p, int64_t rows, int64_t cols, uint32_t dtype) {
  return (octavo_tensor){take(p, rows * cols), rows, cols, cols, dtype, 0};
}

static octavo_scale take_scale(pass *p) {
  return (octavo_scale)OCTAVO_SCALE(take(p, sizeof(float)), 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
}

/* Kernels run one after the other in one workspace; the sum of what they ask for is enough. */
static octavo_status measure(pass *p, const void *call) {
  uint64_t bytes = 0;
  const octavo_status status =
      p->desc->kernels->workspace_bytes(p->desc->kernels_ctx, call, &bytes);
  p->kernels += (bytes + 255) / 256 * 256;
  return status;
}

/* Current scaling in one kernel call: measures amax, derives the scale, casts. Writes the codes,
 * their transpose, or both: a GEMM wants its operands along the dimension it sums over. */
static void quantize(pass *p, const octavo_tensor *in, octavo_tensor *codes, octavo_tensor *codes_t,
                     const octavo_scale *scale_inv, float *nonfinite) {
  octavo_quantize call = {.size = sizeof call, .kind = OCTAVO_KIND_QUANTIZE, .stream = p->stream};
  call.in = in, call.out = codes, call.out_t = codes_t;
  call.out_scale_inv = scale_inv, call.nonfinite = nonfinite, call.rule = OCTAVO_RULE_QUOTIENT;
  call.format_max = (codes ? codes : codes_t)->dtype == OCTAVO_E5M2 ? 57344.0f : 448.0f;
  call.workspace = take(p, 0);
  if (p->status) return;
  p->status = p->base ? p->desc->kernels->quantize(p->desc->kernels_ctx, &call) : measure(p, &call);
}

/* d = a b^T + bias, or d += a b^T. */
static void gemm(pass *p, const octavo_tensor *a, const octavo_scale *a_scale_inv,
                 const octavo_tensor *b, const octavo_scale *b_scale_inv, octavo_tensor *d,
                 const octavo_tensor *bias, uint32_t accumulate) {
  octavo_gemm call = {.size = sizeof call, .kind = OCTAVO_KIND_GEMM, .stream = p->stream};
  call.a = a, call.a_scale_inv = a_scale_inv;
  call.b = b, call.b_scale_inv = b_scale_inv;
  call.d = d, call.bias = bias, call.accumulate = accumulate, call.workspace = take(p, 0);
  if (p->status) return;
  p->status = p->base ? p->desc->kernels->gemm(p->desc->kernels_ctx, &call) : measure(p, &call);
}

/* y = x w^T + bias. Nothing is saved: backward asks for x again and casts it again. */
static void forward(pass *p, const parameter *w, const octavo_forward_call *c) {
  const octavo_tensor weight = {c->slots[kWeight], w->rows, w->cols, w->cols, w->dtype, 0};
  const octavo_scale x_scale_inv = take_scale(p), w_scale_inv = take_scale(p);
  octavo_tensor x_codes = take_codes(p, c->x->rows, w->cols, OCTAVO_E4M3FN);
  octavo_tensor w_codes = take_codes(p, w->rows, w->cols, OCTAVO_E4M3FN);
  quantize(p, c->x, &x_codes, NULL, &x_scale_inv, c->slots[kNonfinite]);
  quantize(p, &weight, &w_codes, NULL, &w_scale_inv, c->slots[kNonfinite]);
  gemm(p, &x_codes, &x_scale_inv, &w_codes, &w_scale_inv, c->y, c->bias, 0);
}

static octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  const octavo_tensor *const all[5] = {c->x, c->y, NULL, c->bias, NULL};
  pass p = begin(s, c->linear, c->x->rows, c->stream, c->workspace, all);
  if (!p.status) forward(&p, &s->parameters[s->linears[c->linear]], c);
  return p.status;
}

/* db takes part in no FP8 arithmetic: it sums in float32 and is converted once. */
static void sum_rows(pass *p, const octavo_tensor *dy, octavo_tensor *sums, octavo_tensor *db,
                     uint32_t accumulate) {
  const octavo_kernels *kernels = p->desc->kernels;
  octavo_sum sum = {.size = sizeof sum, .kind = OCTAVO_KIND_SUM, .stream = p->stream};
  sum.in = dy, sum.out = sums->data, sum.workspace = take(p, 0);
  const octavo_dequantize convert = {
      sizeof convert, OCTAVO_KIND_DEQUANTIZE, p->stream, sums, NULL, db, accumulate, 0};
  if (!p->status)
    p->status = p->base ? kernels->sum_rows(p->desc->kernels_ctx, &sum) : measure(p, &sum);
  if (p->base && !p->status) p->status = kernels->dequantize(p->desc->kernels_ctx, &convert);
}

/* dx = dy w, dw += dy^T x, db += column sums of dy; what is null is not wanted. */
static void backward(pass *p, const parameter *w, const octavo_backward_call *c) {
  const int is_frozen = w->flags & OCTAVO_PARAMETER_FROZEN;
  const int wgrad = c->dw && !is_frozen && !(c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  const uint32_t accumulate = !(c->flags & OCTAVO_BACKWARD_OVERWRITE);
  const octavo_tensor weight = {c->slots[kWeight], w->rows, w->cols, w->cols, w->dtype, 0};
  const octavo_scale dy_scale_inv = take_scale(p), scale_inv = take_scale(p);
  octavo_tensor dy_codes = take_codes(p, c->dy->rows, w->rows, OCTAVO_E5M2);
  octavo_tensor dy_codes_t = take_codes(p, w->rows, c->dy->rows, OCTAVO_E5M2);
  octavo_tensor w_codes_t = take_codes(p, w->cols, w->rows, OCTAVO_E4M3FN);
  octavo_tensor x_codes_t = take_codes(p, w->cols, c->dy->rows, OCTAVO_E4M3FN);
  octavo_tensor sums = {take(p, 4 * w->rows), 1, w->rows, w->rows, OCTAVO_F32, 0};
  if (c->dx || wgrad)
    quantize(p, c->dy, c->dx ? &dy_codes : NULL, wgrad ? &dy_codes_t : NULL, &dy_scale_inv,
             c->slots[kNonfinite]);
  if (c->dx) {
    quantize(p, &weight, NULL, &w_codes_t, &scale_inv, NULL);
    gemm(p, &dy_codes, &dy_scale_inv, &w_codes_t, &scale_inv, c->dx, NULL, 0);
  }
  if (wgrad) {
    quantize(p, c->x, NULL, &x_codes_t, &scale_inv, NULL);
    gemm(p, &dy_codes_t, &dy_scale_inv, &x_codes_t, &scale_inv, c->dw, NULL, accumulate);
  }
  if (c->db) sum_rows(p, c->dy, &sums, c->db, accumulate);
}

static octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  const octavo_tensor *dw = c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT ? NULL : c->dw;
  const octavo_tensor *const all[5] = {c->x, c->dy, c->dx, c->db, dw};
  pass p = begin(s, c->linear, c->dy->rows, c->stream, c->workspace, all);
  if (!p.status) backward(&p, &s->parameters[s->linears[c->linear]], c);
  return p.status;
}

/* Kernels promise that what they ask for is affine over multiples of 256 rows: two questions do. */
static octavo_extent extent_of(const pass *at_256, const pass *at_512) {
  const uint64_t small = at_256->used + at_256->kernels, large = at_512->used + at_512->kernels;
  return (octavo_extent){256, (large - small) / 256, small - (large - small)};
}

static octavo_status linear_plan(const octavo_session *s, uint32_t linear,
                                 octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return fail(&s->desc, OCTAVO_INVALID, "linear_plan: expected a linear that was sealed");
  const parameter *w = &s->parameters[s->linears[linear]];
  void *const slots[2] = {NULL, NULL};
  pass to[2] = {{.desc = &s->desc}, {.desc = &s->desc}}, back[2] = {to[0], to[0]};
  for (int i = 0; i < 2; ++i) {
    octavo_tensor x = {NULL, 256 * (i + 1), w->cols, w->cols, OCTAVO_F32, 0};
    octavo_tensor y = {NULL, 256 * (i + 1), w->rows, w->rows, OCTAVO_F32, 0};
    octavo_tensor dw = {NULL, w->rows, w->cols, w->cols, OCTAVO_F32, 0};
    octavo_tensor db = {NULL, 1, w->rows, w->rows, OCTAVO_F32, 0};
    forward(&to[i], w, &(octavo_forward_call){.x = &x, .y = &y, .slots = slots});
    backward(
        &back[i], w,
        &(octavo_backward_call){.dy = &y, .x = &x, .dx = &x, .dw = &dw, .db = &db, .slots = slots});
    const octavo_status status = to[i].status ? to[i].status : back[i].status;
    if (status)
      return status; /* of a kernel that cannot state its workspace, and has reported it */
  }
  out->flags = OCTAVO_LINEAR_NEEDS_X | s->declined;
  out->gradient =
      w->flags & OCTAVO_PARAMETER_FROZEN ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  out->saved = (octavo_extent){1, 0, 0};
  out->forward_workspace = extent_of(&to[0], &to[1]);
  out->backward_workspace = extent_of(&back[0], &back[1]);
  return OCTAVO_OK;
}

static octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return fail(&s->desc, OCTAVO_INVALID, "quantize_weight: expected a parameter that was sealed");
  return OCTAVO_OK; /* there is no weight cache */
}

/* Current scaling carries nothing from step to step; only the overflow flag is cleared. */
static octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  const octavo_copy clear = {sizeof clear, OCTAVO_KIND_COPY, c->stream, c->slots[0],
                             NULL,         sizeof(float)};
  return s->desc.kernels->copy(s->desc.kernels_ctx, &clear);
}

static const octavo_backend kBackend = {
    sizeof kBackend, OCTAVO_KIND_BACKEND, list_options, check_session, open_session,
    add_parameter,   add_linear,          seal,         linear_plan,   quantize_weight,
    linear_forward,  linear_backward,     end_step,     close_session};

static const void *get_interface(octavo_str id) {
  const octavo_str mine = OCTAVO_STR(OCTAVO_BACKEND_ID);
  return id.size == mine.size && memcmp(id.data, mine.data, mine.size) == 0 ? &kBackend : NULL;
}

static const octavo_plugin kPlugin = {
    sizeof kPlugin,        OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
    OCTAVO_STR("minimal"), OCTAVO_STR("1.0.0"), get_interface};

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &kPlugin;
  return OCTAVO_OK;
}
