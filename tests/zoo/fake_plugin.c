/* A backend that multiplies by weights of 8 bits, k / 32, and describes a few slots; a number in
 * the file, which with_fault.py writes, says in which way it is broken. FAULT is defined where
 * another file is needed: other symbols, or what runs when it is loaded.
 *
 * With FAULT_GOOD it keeps the whole contract of setup, and says the options it was given as a
 * diagnostic, so tests see what crossed the border.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"
#include "octavo/draft/gradients.h"
#include "octavo/draft/optimizer.h"
#include "octavo/fused.h"
#include "octavo/kernels.h"
#include "octavo/plugin.h"

#if !defined(FAULT)
#define FAULT FAULT_GOOD
#endif
static const volatile struct {
  char mark[12];
  uint32_t fault;
} this_file = {"octavo zoo:", FAULT};

#define IS(name) (this_file.fault == FAULT_##name)
#define COMMANDS "\x1b[31mred\nerror: forged\xc2\x9b"

#if FAULT == FAULT_NO_SYMBOL
#define ENTRY octavo_plugin_entry
#elif FAULT == FAULT_SYMBOL_V2
#define ENTRY octavo_plugin_query_2
#elif FAULT == FAULT_SYMBOL_CANDIDATE
#define ENTRY octavo_plugin_query_v1 /* of the release candidates 1 to 3 */
#else
#define ENTRY octavo_plugin_query_1
#endif
OCTAVO_EXPORT octavo_status ENTRY(const octavo_host *host, const octavo_plugin **out);

enum { CAPACITY = 32, NAME = 64 };

struct octavo_session {
  const octavo_host *host;
  octavo_parameter_desc parameters[CAPACITY];
  uint32_t weights[CAPACITY]; /* of linears */
  char names[CAPACITY][NAME]; /* of linears */
  octavo_str labels[CAPACITY];
  uint32_t first_slot[CAPACITY]; /* of parameters */
  uint32_t parameter_count, linear_count, sealed_parameters, sealed_linears, slot_count;
};

#include "fake_probe.inc"

static octavo_str text(const char *s) {
  const octavo_str t = {s, strlen(s)};
  return t;
}

static octavo_value integer(int64_t i) {
  const octavo_value v = {OCTAVO_VALUE_INT, 0, i, 0, {NULL, 0}};
  return v;
}

static octavo_status emit_option(const octavo_option_sink *sink, const char *name, octavo_value v,
                                 octavo_value low, octavo_value high, const octavo_str *choices,
                                 uint64_t choice_count) {
  const octavo_option o = {sizeof o,    OCTAVO_KIND_OPTION,
                           text(name),  text(IS(TERMINAL) ? COMMANDS : "an option"),
                           v,           low,
                           high,        choices,
                           choice_count};
  return sink->option(sink->ctx, &o);
}

static octavo_status list_options(const octavo_option_sink *sink) {
  static const octavo_str modes[] = {OCTAVO_STR("fast"), OCTAVO_STR("exact")};
  const octavo_value none = {0, 0, 0, 0, {NULL, 0}};
  octavo_value ratio = none, low = none, high = none, flag = none, mode = none, note = none;
  at_options();
  if (IS(LIST_OPTIONS)) return OCTAVO_INTERNAL;
  ratio.type = low.type = high.type = OCTAVO_VALUE_REAL;
  ratio.real = 0.5;
  high.real = 1;
  flag.type = OCTAVO_VALUE_BOOL;
  mode.type = note.type = OCTAVO_VALUE_TEXT;
  mode.text = modes[1];
  if (IS(WILD_OPTION) || IS(HUGE_TEXT)) {
    const octavo_str name = {IS(WILD_OPTION) ? (const char *)8 : "short",
                             (uint64_t)1 << (IS(WILD_OPTION) ? 8 : 30)};
    const octavo_option o = {sizeof o, OCTAVO_KIND_OPTION, name, text(""), flag, none, none, NULL,
                             0};
    return sink->option(sink->ctx, &o);
  }
  octavo_status status = emit_option(sink,
                                     IS(NAMELESS_OPTION)  ? ""
                                     : IS(OPTION_NEWLINE) ? "count\n"
                                                          : "count",
                                     integer(4), integer(1), none, NULL, 0);
  if (status == OCTAVO_OK) status = emit_option(sink, "ratio", ratio, low, high, NULL, 0);
  if (status == OCTAVO_OK) status = emit_option(sink, "verbose", flag, none, none, NULL, 0);
  if (status == OCTAVO_OK) status = emit_option(sink, "mode", mode, none, none, modes, 2);
  if (status == OCTAVO_OK) status = emit_option(sink, "note", note, none, none, NULL, 0);
  return status;
}

/* "count=4 ratio=0.5 verbose=0 mode=exact note=" */
static void say_options(const octavo_host *host, const octavo_option_value *options,
                        uint64_t count) {
  char line[512];
  size_t used = 0;
  for (uint64_t i = 0; i < count && used < sizeof line; ++i) {
    const octavo_option_value *o = &options[i];
    used += (size_t)snprintf(line + used, sizeof line - used, "%s%.*s=", i == 0 ? "" : " ",
                             (int)o->name.size, o->name.data);
    if (used >= sizeof line) return;
    if (o->value.type == OCTAVO_VALUE_REAL)
      used += (size_t)snprintf(line + used, sizeof line - used, "%g", o->value.real);
    else if (o->value.type == OCTAVO_VALUE_TEXT)
      used += (size_t)snprintf(line + used, sizeof line - used, "%.*s", (int)o->value.text.size,
                               o->value.text.data);
    else
      used +=
          (size_t)snprintf(line + used, sizeof line - used, "%lld", (long long)o->value.integer);
  }
  const octavo_diagnostic d = {sizeof d,           OCTAVO_KIND_DIAGNOSTIC,
                               OCTAVO_OK,          OCTAVO_SEVERITY_INFO,
                               OCTAVO_STR("fake"), text(IS(TERMINAL) ? COMMANDS : line)};
  host->diagnose(host->ctx, &d);
}

static octavo_status check_session(const octavo_session_desc *desc,
                                   const octavo_verdict_sink *sink) {
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT};
  v.level = OCTAVO_LEVEL_SESSION;
  v.decision = OCTAVO_ACCEPT;
  if (IS(CHECK_FAILS)) return OCTAVO_INTERNAL;
  if (IS(CHECK_NO_VERDICT)) return OCTAVO_OK;
  if (IS(CHECK_DECISION)) v.decision = 7;
  v.text = text(IS(NOT_UTF8) ? "accepts \xff\xfe" : "the fake accepts everything");
  if (IS(NOT_UTF8)) v.evidence = v.remedy = v.text;
  if (IS(TERMINAL)) v.text = v.evidence = v.remedy = text(COMMANDS);
  if (IS(VERDICT_HUGE)) v.text.size = (uint64_t)1 << 40;
  if (IS(CHECK_DECLINES)) {
    v.decision = OCTAVO_DECLINE;
    v.reason = OCTAVO_REASON_DEVICE;
    v.text = text("the fake needs a full moon");
    v.evidence = text("waning crescent");
    v.remedy = text("wait two weeks");
  }
  if (IS(CHECK_SILENT)) {
    v.decision = OCTAVO_DECLINE;
    v.reason = OCTAVO_REASON_DEVICE;
    v.text = text("no");
  }
  say_options(desc->host, desc->options, desc->option_count);
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  if (IS(OPEN_FAILS)) return OCTAVO_NO_RESOURCE;
  if (IS(OPEN_NULL)) return OCTAVO_OK;
  if (IS(OPEN_FORKS) && fork() == 0) return OCTAVO_NO_RESOURCE;
  octavo_session *s = calloc(1, sizeof(octavo_session));
  if (s == NULL) return OCTAVO_NO_RESOURCE;
  s->host = desc->host;
  *out = s;
  return OCTAVO_OK;
}

static void close_session(octavo_session *s) {
  free(s);
}

static void accept(octavo_verdict *v) {
  v->level = OCTAVO_LEVEL_LAYER;
  v->decision = IS(PARAMETER_DECLINES)   ? OCTAVO_DECLINE
                : IS(PARAMETER_DECISION) ? 7
                                         : OCTAVO_ACCEPT;
  v->text = text("as you like");
}

static octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d,
                                   octavo_verdict *v, uint32_t *id) {
  if (s->parameter_count == CAPACITY) return OCTAVO_NO_RESOURCE;
  accept(v);
  if (v->decision == OCTAVO_DECLINE) return OCTAVO_OK;
  s->parameters[s->parameter_count] = *d;
  *id = s->parameter_count++ + (IS(PARAMETER_ID) ? 3 : 0);
  return OCTAVO_OK;
}

static octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                                uint32_t *id) {
  if (s->linear_count == CAPACITY || d->name.size > NAME) return OCTAVO_NO_RESOURCE;
  if (d->option_count > 0) say_options(s->host, d->options, d->option_count);
  const uint32_t l = s->linear_count++;
  s->weights[l] = d->weight;
  memcpy(s->names[l], d->name.data, d->name.size);
  s->labels[l].data = s->names[l];
  s->labels[l].size = d->name.size;
  *id = l + (IS(LINEAR_ID) ? 3 : 0);
  accept(v);
  return OCTAVO_OK;
}

static octavo_status emit(octavo_session *s, const octavo_slot_sink *sink, octavo_slot slot) {
  slot.size = sizeof slot;
  slot.kind = OCTAVO_KIND_SLOT;
  slot.id = s->slot_count++;
  slot.scale_slot = IS(SLOT_SCALE) && slot.id == 3 ? 0 : OCTAVO_NONE;
  const octavo_status status = sink->slot(sink->ctx, &slot);
  return IS(SEAL_IGNORES_SINK) ? OCTAVO_OK : status;
}

static octavo_status use(const octavo_slot_sink *sink, uint32_t owner_kind, uint32_t owner,
                         uint32_t slot, uint32_t first, uint32_t count) {
  const octavo_slot_use u = {owner_kind, owner, slot, first, count, IS(USE_RESERVED) ? 1 : 0};
  const octavo_status status = sink->use(sink->ctx, &u);
  return IS(SEAL_IGNORES_SINK) ? OCTAVO_OK : status;
}

#define TRY(call)                         \
  do {                                    \
    const octavo_status tried = (call);   \
    if (tried != OCTAVO_OK) return tried; \
  } while (0)

#include "fake_seal.inc"

static octavo_status linear_plan(const octavo_session *s, uint32_t linear,
                                 octavo_linear_plan *out) {
  const octavo_extent none = {IS(PLAN_ROWS) ? 0 : 1, 0, 0};
  if (IS(PLAN_FAILS) || linear >= s->sealed_linears) return OCTAVO_INVALID;
  const uint32_t trained = s->parameters[s->weights[linear]].flags & OCTAVO_PARAMETER_FROZEN
                               ? OCTAVO_GRADIENT_NONE
                               : OCTAVO_GRADIENT_TENSOR;
  out->gradient = IS(PLAN_GRADIENT) ? 10 : IS(PLAN_GRADIENT_SLOT) ? OCTAVO_GRADIENT_SLOT : trained;
  out->saved = out->forward_workspace = out->backward_workspace = none;
  if (IS(PLAN_FLAG)) out->flags = 64;
  if (IS(PLAN_DECLINES)) out->flags = 28;
  if (IS(FUSED_KEEPS_X)) out->flags = OCTAVO_LINEAR_NEEDS_X;
  if (IS(PLAN_HUGE)) out->forward_workspace.fixed_bytes = ((uint64_t)1 << 47) + 1;
  if (IS(PLAN_NEGATIVE)) out->saved.bytes_per_row = (uint64_t)-16;
  if (IS(PLAN_ROW_MULTIPLE)) out->backward_workspace.row_multiple = (uint64_t)1 << 63;
  if (IS(PLAN_WEIGHT)) out->weight_workspace = (uint64_t)1 << 60;
  if (IS(PLAN_MEMORY)) out->forward_workspace.fixed_bytes = (uint64_t)1 << 40;
  return OCTAVO_OK;
}

/* On the CPU only, like every pointer that is read here. */
static octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c == NULL) return OCTAVO_OK;
  const octavo_parameter_desc *d = &s->parameters[c->parameter];
  const float *w = (const float *)c->slots[0];
  int8_t *codes = (int8_t *)c->slots[2];
  for (int64_t i = 0; d->dtype == OCTAVO_F32 && i < d->rows * d->cols; ++i) {
    const float code = w[i] * 32;
    codes[i] = (int8_t)(code > 127 ? 127 : code < -127 ? -127 : code);
  }
  return OCTAVO_OK;
}
static octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  (void)s;
  if (c == NULL) return OCTAVO_OK;
  if (IS(FORWARD_FAILS)) {
    const octavo_diagnostic d = {sizeof d,           OCTAVO_KIND_DIAGNOSTIC,
                                 OCTAVO_UNSUPPORTED, OCTAVO_SEVERITY_ERROR,
                                 OCTAVO_STR("fake"), OCTAVO_STR("expected 17 rows")};
    s->host->diagnose(s->host->ctx, &d);
    fprintf(stderr, "one line\nand another\n");
    return OCTAVO_UNSUPPORTED;
  }
  const octavo_tensor *x = c->x;
  octavo_tensor *y = c->y;
  const int8_t *codes = (const int8_t *)c->slots[0];
  for (int64_t m = 0; x->dtype == OCTAVO_F32 && m < x->rows && !IS(FORWARD_DOES_NOTHING); ++m)
    for (int64_t n = 0; n < y->cols; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < x->cols; ++k)
        sum += ((const float *)x->data)[m * x->stride + k] * (float)codes[n * x->cols + k] / 32;
      ((float *)y->data)[m * y->stride + n] = sum;
    }
  at_forward(c);
  return OCTAVO_OK;
}
static octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  (void)s, (void)c;
  return OCTAVO_OK;
}
static octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  (void)s, (void)c;
  return OCTAVO_OK;
}

#include "fake_tables.inc"
