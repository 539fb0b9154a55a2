/* The smallest useful backend: E4M3 weights and activations, E5M2 gradients, per-tensor current
 * scaling, no cache and no state but the nonfinite flag. Read it first when you write a backend;
 * this file says what exists, linear.c computes.
 *
 * What must not go wrong: host code here never reads slot or tensor memory. It only passes
 * addresses to kernels, which may run later and on another device.
 */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

octavo_status reference_refuse(const octavo_host *host, octavo_status status, const char *text) {
  octavo_diagnostic d = {sizeof d,
                         OCTAVO_KIND_DIAGNOSTIC,
                         status,
                         OCTAVO_SEVERITY_ERROR,
                         OCTAVO_STR("reference"),
                         {text, strlen(text)}};
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

static octavo_status check_flags(const octavo_session_desc *desc) {
  if ((desc->flags & ~(uint64_t)OCTAVO_SESSION_DETERMINISTIC) == 0) return OCTAVO_OK;
  return reference_refuse(desc->host, OCTAVO_INVALID, "the session has a flag that is not known");
}

/* What the kernels say of the calls below: the least of their answers. */
static uint32_t ask_kernels(const octavo_session_desc *desc) {
  static const struct {
    uint32_t call, dtype, b_dtype;
  } needed[] = {{OCTAVO_KIND_QUANTIZE, OCTAVO_E4M3FN, 0},
                {OCTAVO_KIND_QUANTIZE, OCTAVO_E5M2, 0},
                {OCTAVO_KIND_GEMM, OCTAVO_E4M3FN, OCTAVO_E4M3FN},
                {OCTAVO_KIND_GEMM, OCTAVO_E5M2, OCTAVO_E4M3FN},
                {OCTAVO_KIND_SUM, OCTAVO_F32, 0},
                {OCTAVO_KIND_SUM, OCTAVO_BF16, 0},
                {OCTAVO_KIND_SUM, OCTAVO_F16, 0},
                {OCTAVO_KIND_DEQUANTIZE, OCTAVO_F32, 0},
                {OCTAVO_KIND_COPY, 0, 0}};
  uint32_t least = OCTAVO_ACCEPT;
  for (size_t i = 0; i < sizeof needed / sizeof *needed; ++i) {
    octavo_ability q = {.size = sizeof q, .kind = OCTAVO_KIND_ABILITY};
    q.call = needed[i].call;
    q.dtype = needed[i].dtype;
    q.b_dtype = needed[i].b_dtype;
    if (desc->kernels->ability(desc->kernels_ctx, &q) != OCTAVO_OK || q.decision == OCTAVO_DECLINE)
      return OCTAVO_DECLINE;
    if (q.decision == OCTAVO_ACCEPT_EMULATED) least = q.decision;
  }
  return least;
}

static octavo_status check_session(const octavo_session_desc *desc,
                                   const octavo_verdict_sink *sink) {
  const octavo_status status = check_flags(desc);
  if (status != OCTAVO_OK) return status;
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT};
  const uint32_t decision = ask_kernels(desc);
  if (decision == OCTAVO_DECLINE)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           "the kernels lack a cast, a product or a sum of this backend");
  else if (desc->caps->alignment > 1)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_SHAPE,
           "the kernels need aligned shapes, and this backend does not pad; te does");
  else if (decision == OCTAVO_ACCEPT_EMULATED)
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT_EMULATED, OCTAVO_REASON_NONE,
           "per-tensor current scaling; FP8 arithmetic is emulated exactly, without FP8 hardware");
  else
    answer(&v, OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
           "per-tensor current scaling");
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  if (desc->option_count > 0)
    return reference_refuse(desc->host, OCTAVO_INVALID, "this backend has no options");
  const octavo_status status = check_flags(desc);
  if (status != OCTAVO_OK) return status;
  octavo_session *s = calloc(1, sizeof *s);
  if (s == NULL) return reference_refuse(desc->host, OCTAVO_NO_RESOURCE, "out of memory");
  OCTAVO_TAKE(s->desc, desc);
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
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "add_parameter: expected reserved 0 and known flags only");
  if (d->rows < 1 || d->cols < 1)
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "add_parameter: expected rows and cols >= 1");
  if (d->rows > REFERENCE_MOST || d->cols > REFERENCE_MOST ||
      d->rows > REFERENCE_MOST * 1024 / d->cols)
    return reference_refuse(
        s->desc.host, OCTAVO_INVALID,
        "add_parameter: expected at most 2^40 rows and cols, and 2^50 elements");
  if (!reference_is_plain(d->dtype) ||
      (!(d->flags & OCTAVO_PARAMETER_FROZEN) && !reference_is_plain(d->gradient_dtype))) {
    answer(verdict, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
           "expected a weight and its gradient in f32, bf16 or f16");
    return OCTAVO_OK;
  }
  parameter *grown = realloc(s->parameters, (s->parameter_count + 1) * sizeof *grown);
  if (grown == NULL) return reference_refuse(s->desc.host, OCTAVO_NO_RESOURCE, "out of memory");
  s->parameters = grown;
  OCTAVO_TAKE(grown[s->parameter_count].desc, d);
  *id = s->parameter_count++;
  answer(verdict, OCTAVO_LEVEL_LAYER, OCTAVO_ACCEPT, OCTAVO_REASON_NONE, "native weight");
  return OCTAVO_OK;
}

static octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d,
                                octavo_verdict *verdict, uint32_t *id) {
  if (d->flags != 0)
    return reference_refuse(s->desc.host, OCTAVO_INVALID, "add_linear: expected flags 0");
  if (d->weight >= s->parameter_count ||
      !(s->parameters[d->weight].desc.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT))
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "add_linear: expected the id of a parameter added as LINEAR_WEIGHT");
  if (d->option_count > 0) {
    answer(verdict, OCTAVO_LEVEL_LAYER, OCTAVO_DECLINE, OCTAVO_REASON_OPTION,
           "this backend has no options for single linears");
    return OCTAVO_OK;
  }
  uint32_t *grown = realloc(s->linears, (s->linear_count + 1) * sizeof *grown);
  if (grown == NULL) return reference_refuse(s->desc.host, OCTAVO_NO_RESOURCE, "out of memory");
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
    slot.access[OCTAVO_VERB_FORWARD] = OCTAVO_ACCESS_ACCUMULATE;
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

static octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (!REFERENCE_IS(c, octavo_weight_call, workspace, OCTAVO_KIND_WEIGHT_CALL))
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "quantize_weight: expected an octavo_weight_call, its size and kind");
  if (c->parameter >= s->sealed_parameters)
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "quantize_weight: expected a sealed parameter");
  return OCTAVO_OK; /* no cache to refresh */
}

static octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  if (!REFERENCE_IS(c, octavo_step_call, slots, OCTAVO_KIND_STEP_CALL))
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "end_step: expected an octavo_step_call, its size and kind");
  if (s->slot_count == 0) return OCTAVO_OK; /* no seal yet: the session has no list */
  const octavo_copy clear = {sizeof clear, OCTAVO_KIND_COPY, c->stream, c->slots[SESSION_NONFINITE],
                             NULL,         sizeof(float)};
  return s->desc.kernels->copy(s->desc.kernels_ctx, &clear);
}

static const octavo_backend backend = {sizeof backend,
                                       OCTAVO_KIND_BACKEND,
                                       list_options,
                                       check_session,
                                       open_session,
                                       add_parameter,
                                       add_linear,
                                       seal,
                                       reference_linear_plan,
                                       quantize_weight,
                                       reference_linear_forward,
                                       reference_linear_backward,
                                       end_step,
                                       close_session};

static const void *get_interface(octavo_str id) {
  const octavo_str known = OCTAVO_STR(OCTAVO_BACKEND_ID);
  return id.size == known.size && memcmp(id.data, known.data, id.size) == 0 ? &backend : NULL;
}

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  static const octavo_plugin plugin = {
      sizeof plugin,           OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
      OCTAVO_STR("reference"), OCTAVO_STR("0.1.0"), get_interface};
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}
