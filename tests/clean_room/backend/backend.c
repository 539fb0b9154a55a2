/* rowblock: an FP8 method for linear layers, as a plugin in C11.
 *
 *   x    E4M3, one scale per row, from the call's own values; for dw, x^T with a scale per row of
 * x^T w    E4M3, one scale per block of 128x128, cached by quantize_weight together with w^T dy
 * E5M2, one delayed scale per linear: the maximum of a history. Until a linear has seen `warmup`
 * steps, the scale of a call follows from the call's own values
 *
 *   y  = x w^T    blocks 1x128 by 128x128: the scale of a row of x stands in each of its blocks
 *   dx = dy w     blocks 128x128: the scale of dy stands in each block
 *   dw = dy^T x   the scale of dy, and those of the rows of x^T
 *
 * `saved` has the scales and codes of x^T. Where products need multiples of the kernels' alignment,
 * codes are padded with zeros, and results pass through the workspace. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octavo/kernels.h"
#include "octavo/plugin.h"

#define E4M3_MAX 448.0f
#define E5M2_MAX 57344.0f
#define BLOCK 128
#define LARGEST_MULTIPLE (1 << 20) /* of rows in an extent */
#define LARGEST_DIM (INT64_C(1) << 26)
#define LARGEST_EXTENT (UINT64_C(1) << 46) /* bytes, of each part of a workspace */

#define STR(literal) ((octavo_str)OCTAVO_STR(literal))
#define TRY(call)                             \
  do {                                        \
    const octavo_status status_ = (call);     \
    if (status_ != OCTAVO_OK) return status_; \
  } while (0)

/* A struct of the ABI that can grow, most often the arguments of a call. */
#define CALL(type, kind_, ...) \
  ((type){.size = sizeof(type), .kind = OCTAVO_KIND_##kind_, __VA_ARGS__})

/* The slots of a parameter, counted from its first one. */
enum { WEIGHT, SCALE, CODES, SCALE_T, CODES_T, PARAMETER_SLOTS };
/* The slots of a pool, counted from its first one. */
enum { AMAX, HISTORY, DY_SCALE, COUNTER, POOL_SLOTS };
/* The list of a parameter has PARAMETER_SLOTS entries in their order, then NONFINITE. */
enum { PARAMETER_NONFINITE = PARAMETER_SLOTS };
/* The list of a linear. */
enum { L_SCALE, L_CODES, L_SCALE_T, L_CODES_T, L_AMAX, L_DY_SCALE, L_COUNTER, L_NONFINITE };
/* The list of the session has NONFINITE, then POOL_SLOTS entries for each pool. */

enum { OPTION_HISTORY, OPTION_MARGIN, OPTION_WARMUP, OPTION_POW2, OPTIONS };

#define INTEGER(value) \
  { .type = OCTAVO_VALUE_INT, .integer = (value) }
#define OPTION(name, help, ...)                                                                 \
  {                                                                                             \
    sizeof(octavo_option), OCTAVO_KIND_OPTION, OCTAVO_STR(name), OCTAVO_STR(help), __VA_ARGS__, \
        NULL, 0                                                                                 \
  }
static const octavo_option option_table[OPTIONS] = {
    OPTION("amax_history_len", "steps that the scale of dy looks back", INTEGER(16), INTEGER(1),
           INTEGER(1024)),
    OPTION("margin", "the delayed scale of dy is divided by 2^margin", INTEGER(0), INTEGER(0),
           INTEGER(16)),
    OPTION("warmup", "steps of a linear with current instead of delayed scales of dy", INTEGER(1),
           INTEGER(0), INTEGER(1000)),
    OPTION("power_of_two_scales", "all scales are rounded down to powers of two",
           {.type = OCTAVO_VALUE_BOOL}, {0}, {0}),
};

typedef struct parameter {
  octavo_str name;
  int64_t n, k, padded_n, padded_k; /* the shape of the weight, and of its codes */
  uint32_t dtype, flags, first_slot;
  uint64_t workspace; /* of quantize_weight */
} parameter;

typedef struct linear {
  octavo_str name;
  uint32_t weight;
  int64_t warmup;
  octavo_linear_plan plan;
} linear;

struct octavo_session {
  const octavo_host *host;
  const octavo_kernels *kernels;
  void *ctx;
  int64_t alignment;    /* of the dimensions of products */
  int64_t row_multiple; /* of workspaces: a multiple of `alignment` and of 256 */
  int64_t options[OPTIONS];
  uint32_t rule;
  parameter *parameters;
  linear *linears;
  uint64_t *pools; /* the number of linears in each */
  uint32_t parameter_count, linear_count, pool_count;
  uint32_t parameters_sealed, linears_sealed, slot_count;
};

/* ---- Diagnostics and small helpers. */

static octavo_status fail(const octavo_host *host, octavo_status code, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const uint64_t size = length < 0                  ? 0
                        : length < (int)sizeof text ? (uint64_t)length
                                                    : sizeof text - 1;
  const octavo_diagnostic d =
      CALL(octavo_diagnostic, DIAGNOSTIC, .code = code, .severity = OCTAVO_SEVERITY_ERROR,
           .domain = OCTAVO_STR("rowblock"), .text = {text, size});
  if (host != NULL) host->diagnose(host->ctx, &d);
  return code;
}

static int equal(octavo_str a, octavo_str b) {
  return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
static int64_t blocks(int64_t value) {
  return (value + BLOCK - 1) / BLOCK;
}
static uint64_t region(int64_t bytes) {
  return (uint64_t)round_up(bytes, OCTAVO_ALIGNMENT);
}
static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static int is_float(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

static octavo_tensor tensor(void *data, int64_t rows, int64_t cols, int64_t stride,
                            uint32_t dtype) {
  return (octavo_tensor){data, rows, cols, stride, dtype, 0};
}

static octavo_scale scale(void *data, int64_t stride, uint32_t granularity) {
  return (octavo_scale)OCTAVO_SCALE(data, stride, OCTAVO_F32, granularity);
}

/* A workspace in use. A plan has no base, and counts. */
typedef struct cursor {
  char *base;
  uint64_t used;
} cursor;

static void *take(cursor *c, int64_t bytes) {
  char *const start = c->base != NULL ? c->base + c->used : NULL;
  c->used += region(bytes);
  return start;
}

/* Fills in an output struct behind its size and kind, as far as its owner has it. */
static void answer(void *out, const void *own, uint32_t size) {
  const uint32_t given = *(const uint32_t *)out, head = 2 * sizeof(uint32_t);
  if (given < size) size = given;
  if (size > head) memcpy((char *)out + head, (const char *)own + head, size - head);
}

static octavo_status zero(const octavo_session *s, void *stream, void *out, uint64_t bytes) {
  const octavo_copy c = CALL(octavo_copy, COPY, .stream = stream, .out = out, .bytes = bytes);
  return bytes == 0 ? OCTAVO_OK : s->kernels->copy(s->ctx, &c);
}

static octavo_status zero_rows(const octavo_session *s, void *stream, const octavo_tensor *t) {
  const uint64_t element = OCTAVO_DTYPE_BYTES(t->dtype, 1);
  if (t->stride == t->cols)
    return zero(s, stream, t->data, element * (uint64_t)(t->rows * t->cols));
  for (int64_t i = 0; i < t->rows; i++)
    TRY(zero(s, stream, (char *)t->data + element * (uint64_t)(i * t->stride),
             element * (uint64_t)t->cols));
  return OCTAVO_OK;
}

/* out = in or out += in. */
static octavo_status convert(const octavo_session *s, void *stream, const octavo_tensor *in,
                             octavo_tensor *out, uint32_t accumulate) {
  return s->kernels->dequantize(s->ctx, &CALL(octavo_dequantize, DEQUANTIZE, .stream = stream,
                                              .in = in, .out = out, .accumulate = accumulate));
}

/* Sets `count` floats to *value, by copies of twice the length each. */
static octavo_status repeat(const octavo_session *s, void *stream, float *out, const float *value,
                            uint64_t count) {
  for (uint64_t done = 0; done < count;) {
    const uint64_t n = done == 0 ? 1 : done < count - done ? done : count - done;
    TRY(s->kernels->copy(s->ctx, &CALL(octavo_copy, COPY, .stream = stream, .out = out + done,
                                       .in = done == 0 ? value : out, .bytes = n * sizeof *out)));
    done += n;
  }
  return OCTAVO_OK;
}

/* Copies column 0 of a matrix to all its columns, in passes that double what is done. */
static octavo_status repeat_column(const octavo_session *s, void *stream, float *data, int64_t rows,
                                   int64_t cols) {
  for (int64_t done = 1; done < cols;) {
    const int64_t n = done < cols - done ? done : cols - done;
    const octavo_tensor in = tensor(data, rows, n, cols, OCTAVO_F32);
    octavo_tensor out = tensor(data + done, rows, n, cols, OCTAVO_F32);
    TRY(convert(s, stream, &in, &out, 0));
    done += n;
  }
  return OCTAVO_OK;
}

/* ---- The calls of kernels. A plan builds them too, without data, to ask for their workspaces. */

static void *const no_slots[PARAMETER_SLOTS + 4]; /* of a plan */

typedef struct forward_calls {
  cursor at;
  float *row_scales;
  octavo_tensor codes, codes_t, w, d, bias;
  octavo_scale rows, rows_t, row_blocks, w_blocks;
  octavo_quantize quantize;
  octavo_gemm gemm;
} forward_calls;

static void build_forward(const octavo_session *s, const parameter *p, const octavo_forward_call *c,
                          int saves, forward_calls *f) {
  const int64_t m = c->x->rows, pm = round_up(m, s->alignment), rows = round_up(m, s->row_multiple);
  const int64_t n = p->padded_n, k = p->padded_k;
  char *const saved = c->saved;
  f->at = (cursor){c->workspace, 0};
  f->codes = tensor(take(&f->at, rows * k), pm, k, k, OCTAVO_E4M3FN);
  f->row_scales = take(&f->at, rows * blocks(k) * 4);
  f->rows = scale(f->row_scales, blocks(k), OCTAVO_PER_ROW);
  f->row_blocks = scale(f->row_scales, blocks(k), OCTAVO_BLOCK_1X128);
  f->rows_t = scale(saved, 1, OCTAVO_PER_ROW);
  f->codes_t = tensor(saved ? saved + region(k * 4) : NULL, k, pm, pm, OCTAVO_E4M3FN);
  f->w = tensor(c->slots[L_CODES], n, k, k, OCTAVO_E4M3FN);
  f->w_blocks = scale(c->slots[L_SCALE], blocks(k), OCTAVO_BLOCK_128X128);
  void *const d = s->alignment > 1 ? take(&f->at, rows * n * 4) : NULL;
  f->d = pm != m || n != p->n ? tensor(d, pm, n, n, c->y->dtype) : *c->y;
  void *const bias = n != p->n ? take(&f->at, n * 4) : NULL;
  if (c->bias != NULL) f->bias = n != p->n ? tensor(bias, 1, n, n, c->bias->dtype) : *c->bias;
  void *const workspace = take(&f->at, 0);
  f->quantize =
      CALL(octavo_quantize, QUANTIZE, .stream = c->stream, .in = c->x, .out = &f->codes,
           .out_t = saves ? &f->codes_t : NULL, .out_scale_inv = &f->rows,
           .out_t_scale_inv = saves ? &f->rows_t : NULL, .nonfinite = c->slots[L_NONFINITE],
           .format_max = E4M3_MAX, .rule = s->rule, .workspace = workspace);
  f->gemm = CALL(octavo_gemm, GEMM, .stream = c->stream, .a = &f->codes, .b = &f->w, .d = &f->d,
                 .bias = c->bias ? &f->bias : NULL, .a_scale_inv = &f->row_blocks,
                 .b_scale_inv = &f->w_blocks, .workspace = workspace);
}

typedef struct backward_calls {
  cursor at;
  octavo_tensor codes, codes_t, w_t, x_t, dx, dw, sums;
  octavo_scale one, dy_blocks, w_blocks, x_rows;
  octavo_quantize quantize;
  octavo_gemm dgrad, wgrad;
  octavo_sum sum;
} backward_calls;

static void build_backward(const octavo_session *s, const parameter *p,
                           const octavo_backward_call *c, int64_t warmup, backward_calls *b) {
  const int64_t m = c->dy->rows, pm = round_up(m, s->alignment),
                rows = round_up(m, s->row_multiple);
  const int64_t n = p->padded_n, k = p->padded_k;
  char *const saved = (char *)(uintptr_t)c->saved;
  b->at = (cursor){c->workspace, 0};
  b->codes = tensor(take(&b->at, rows * n), pm, n, n, OCTAVO_E5M2);
  b->codes_t = tensor(take(&b->at, rows * n), n, pm, pm, OCTAVO_E5M2);
  b->dy_blocks = scale(take(&b->at, rows * blocks(blocks(n) * 4)), blocks(n), OCTAVO_BLOCK_128X128);
  b->one = scale(take(&b->at, 4), 0, OCTAVO_PER_TENSOR);
  b->sums = tensor(take(&b->at, p->n * 4), 1, p->n, p->n, OCTAVO_F32);
  b->x_rows = scale(saved, 1, OCTAVO_PER_ROW);
  b->x_t = tensor(saved ? saved + region(k * 4) : NULL, k, pm, pm, OCTAVO_E4M3FN);
  b->w_t = tensor(c->slots[L_CODES_T], k, n, n, OCTAVO_E4M3FN);
  b->w_blocks = scale(c->slots[L_SCALE_T], blocks(n), OCTAVO_BLOCK_128X128);
  void *const dx = s->alignment > 1 ? take(&b->at, rows * k * 4) : NULL;
  if (c->dx != NULL) b->dx = pm != m || k != p->k ? tensor(dx, pm, k, k, c->dx->dtype) : *c->dx;
  void *const dw = n != p->n || k != p->k ? take(&b->at, n * k * 4) : NULL;
  if (c->dw != NULL) b->dw = n != p->n || k != p->k ? tensor(dw, n, k, k, c->dw->dtype) : *c->dw;
  void *const workspace = take(&b->at, 0);
  b->quantize = CALL(
      octavo_quantize, QUANTIZE, .stream = c->stream, .in = c->dy, .out = c->dx ? &b->codes : NULL,
      .out_t = c->dw ? &b->codes_t : NULL, .out_scale_inv = &b->one, .scale = c->slots[L_DY_SCALE],
      .counter = c->slots[L_COUNTER], .amax = c->slots[L_AMAX], .nonfinite = c->slots[L_NONFINITE],
      .format_max = E5M2_MAX, .window = (float)warmup, .rule = s->rule, .workspace = workspace);
  b->dgrad =
      CALL(octavo_gemm, GEMM, .stream = c->stream, .a = &b->codes, .b = &b->w_t, .d = &b->dx,
           .a_scale_inv = &b->dy_blocks, .b_scale_inv = &b->w_blocks, .workspace = workspace);
  b->wgrad =
      CALL(octavo_gemm, GEMM, .stream = c->stream, .a = &b->codes_t, .b = &b->x_t, .d = &b->dw,
           .a_scale_inv = &b->one, .b_scale_inv = &b->x_rows, .workspace = workspace,
           .accumulate = (c->flags & OCTAVO_BACKWARD_OVERWRITE) == 0);
  b->sum = CALL(octavo_sum, SUM, .stream = c->stream, .in = c->dy, .out = b->sums.data,
                .workspace = workspace);
}

typedef struct weight_calls {
  octavo_tensor w, codes, codes_t;
  octavo_scale blocks, blocks_t;
  octavo_quantize quantize;
} weight_calls;

static void build_weight(const octavo_session *s, const parameter *p, const octavo_weight_call *c,
                         weight_calls *w) {
  const int64_t n = p->padded_n, k = p->padded_k;
  w->w = tensor(c->slots[WEIGHT], p->n, p->k, p->k, p->dtype);
  w->codes = tensor(c->slots[CODES], n, k, k, OCTAVO_E4M3FN);
  w->codes_t = tensor(c->slots[CODES_T], k, n, n, OCTAVO_E4M3FN);
  w->blocks = scale(c->slots[SCALE], blocks(k), OCTAVO_BLOCK_128X128);
  w->blocks_t = scale(c->slots[SCALE_T], blocks(n), OCTAVO_BLOCK_128X128);
  w->quantize = CALL(octavo_quantize, QUANTIZE, .stream = c->stream, .in = &w->w, .out = &w->codes,
                     .out_t = &w->codes_t, .out_scale_inv = &w->blocks,
                     .out_t_scale_inv = &w->blocks_t, .nonfinite = c->slots[PARAMETER_NONFINITE],
                     .format_max = E4M3_MAX, .rule = s->rule, .workspace = c->workspace);
}

/* ---- Opening a session. */

static octavo_status list_options(const octavo_option_sink *sink) {
  for (int i = 0; i < OPTIONS; i++) TRY(sink->option(sink->ctx, &option_table[i]));
  return OCTAVO_OK;
}

/* The index of an option if its value is one of the option's; otherwise -1. */
static int find_option(const octavo_option_value *given) {
  for (int i = 0; i < OPTIONS; i++) {
    const octavo_option *o = &option_table[i];
    if (!equal(o->name, given->name)) continue;
    const int64_t low = o->low.type ? o->low.integer : 0, high = o->high.type ? o->high.integer : 1;
    const int64_t value = given->value.integer;
    return given->value.type == o->initial.type && value >= low && value <= high ? i : -1;
  }
  return -1;
}

static octavo_status read_desc(const octavo_session_desc *desc, octavo_session *s) {
  octavo_session_desc d;
  OCTAVO_TAKE(d, desc);
  if (d.kernels == NULL || d.caps == NULL || d.host == NULL)
    return fail(d.host, OCTAVO_INVALID, "a session needs a host, kernels and their capabilities");
  if (d.flags & ~(uint64_t)OCTAVO_SESSION_DETERMINISTIC)
    return fail(d.host, OCTAVO_INVALID, "unknown session flags 0x%llx",
                (unsigned long long)d.flags);
  s->host = d.host;
  s->kernels = d.kernels;
  s->ctx = d.kernels_ctx;
  s->alignment =
      d.caps->alignment > LARGEST_MULTIPLE ? LARGEST_MULTIPLE + 1 : (int64_t)d.caps->alignment;
  if (s->alignment < 1) s->alignment = 1;
  s->row_multiple = 256 % s->alignment == 0 ? 256 : 256 * s->alignment;
  for (int i = 0; i < OPTIONS; i++) s->options[i] = option_table[i].initial.integer;
  for (uint64_t i = 0; i < d.option_count; i++) {
    const int option = find_option(&d.options[i]);
    if (option < 0)
      return fail(d.host, OCTAVO_INVALID, "option %.*s is unknown, or its value is out of range",
                  (int)d.options[i].name.size, d.options[i].name.data);
    s->options[option] = d.options[i].value.integer;
  }
  s->rule = s->options[OPTION_POW2] ? OCTAVO_RULE_POW2 : OCTAVO_RULE_QUOTIENT;
  return OCTAVO_OK;
}

/* What the method asks of kernels. */
#define NEEDS(call, ...) \
  { OCTAVO_KIND_##call, __VA_ARGS__ }
static const struct requirement {
  uint32_t call, flags, dtype, granularity, b_dtype, b_granularity;
  octavo_str text;
} requirements[] = {
    NEEDS(QUANTIZE, 0, OCTAVO_E4M3FN, OCTAVO_PER_ROW, 0, 0,
          OCTAVO_STR("casts to E4M3 with scales of rows")),
    NEEDS(QUANTIZE, 0, OCTAVO_E4M3FN, OCTAVO_BLOCK_128X128, 0, 0,
          OCTAVO_STR("casts to E4M3 in blocks 128x128")),
    NEEDS(QUANTIZE, 0, OCTAVO_E5M2, OCTAVO_PER_TENSOR, 0, 0,
          OCTAVO_STR("casts to E5M2 with one scale")),
    NEEDS(GEMM, 0, OCTAVO_E4M3FN, OCTAVO_BLOCK_1X128, OCTAVO_E4M3FN, OCTAVO_BLOCK_128X128,
          OCTAVO_STR("products of E4M3 in blocks 1x128 by E4M3 in blocks 128x128")),
    NEEDS(GEMM, 0, OCTAVO_E5M2, OCTAVO_BLOCK_128X128, OCTAVO_E4M3FN, OCTAVO_BLOCK_128X128,
          OCTAVO_STR("products of E5M2 by E4M3 in blocks 128x128")),
    NEEDS(GEMM, 0, OCTAVO_E5M2, OCTAVO_PER_TENSOR, OCTAVO_E4M3FN, OCTAVO_PER_ROW,
          OCTAVO_STR("products of E5M2 with one scale by E4M3 with scales of rows")),
    NEEDS(DELAYED_SCALE_UPDATE, OCTAVO_HISTORY_MSAMP, OCTAVO_F32, 0, 0, 0,
          OCTAVO_STR("delayed scales")),
    NEEDS(DEQUANTIZE, 0, OCTAVO_F32, 0, 0, 0, OCTAVO_STR("conversions of float32")),
    NEEDS(DEQUANTIZE, 0, OCTAVO_BF16, 0, 0, 0, OCTAVO_STR("conversions of bfloat16")),
    NEEDS(DEQUANTIZE, 0, OCTAVO_F16, 0, 0, 0, OCTAVO_STR("conversions of float16")),
    NEEDS(COMPUTE_AMAX, 0, OCTAVO_F32, 0, 0, 0, OCTAVO_STR("the amax of a tensor")),
    NEEDS(SUM, 0, OCTAVO_F32, 0, 0, 0, OCTAVO_STR("sums of columns")),
    NEEDS(SUM, 0, OCTAVO_BF16, 0, 0, 0, OCTAVO_STR("sums of columns of bfloat16")),
    NEEDS(SUM, 0, OCTAVO_F16, 0, 0, 0, OCTAVO_STR("sums of columns of float16")),
    NEEDS(COPY, 0, OCTAVO_F32, 0, 0, 0, OCTAVO_STR("copies")),
};

static octavo_verdict verdict_of(uint32_t level, uint32_t decision, uint32_t reason,
                                 octavo_str text) {
  return CALL(octavo_verdict, VERDICT, .level = level, .decision = decision, .reason = reason,
              .text = text);
}

/* Finds out whether the session's kernels can do all that it needs. */
static octavo_status judge(const octavo_session *s, const octavo_session_desc *desc,
                           octavo_verdict *v) {
  const int repeats = !(desc->flags & OCTAVO_SESSION_DETERMINISTIC) ||
                      (desc->caps->flags & OCTAVO_CAPS_DETERMINISTIC);
  *v = verdict_of(OCTAVO_LEVEL_SESSION, OCTAVO_DECLINE, OCTAVO_REASON_KERNEL,
                  repeats ? STR("products need multiples beyond what a plan can state")
                          : STR("these kernels do not promise equal bits for equal inputs"));
  if (!repeats || s->row_multiple > LARGEST_MULTIPLE) return OCTAVO_OK;
  *v = verdict_of(OCTAVO_LEVEL_SESSION, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
                  STR("these kernels have all that it needs"));
  for (size_t i = 0; i < sizeof requirements / sizeof *requirements; i++) {
    const struct requirement *r = &requirements[i];
    octavo_ability q = CALL(octavo_ability, ABILITY, .call = r->call, .flags = r->flags,
                            .dtype = r->dtype, .granularity = r->granularity, .b_dtype = r->b_dtype,
                            .b_granularity = r->b_granularity);
    TRY(s->kernels->ability(s->ctx, &q));
    if (q.decision == OCTAVO_ACCEPT) continue;
    v->evidence = q.evidence;
    v->decision = OCTAVO_ACCEPT_EMULATED;
    if (q.decision == OCTAVO_ACCEPT_EMULATED) continue;
    v->decision = OCTAVO_DECLINE;
    v->reason = OCTAVO_REASON_KERNEL;
    v->text = r->text;
    return OCTAVO_OK;
  }
  return OCTAVO_OK;
}

static octavo_status check_session(const octavo_session_desc *desc,
                                   const octavo_verdict_sink *sink) {
  octavo_session s;
  octavo_verdict v;
  TRY(read_desc(desc, &s));
  TRY(judge(&s, desc, &v));
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status open_session(const octavo_session_desc *desc, octavo_session **out) {
  octavo_session s = {0};
  octavo_verdict v;
  TRY(read_desc(desc, &s));
  TRY(judge(&s, desc, &v));
  if (v.decision == OCTAVO_DECLINE)
    return fail(s.host, OCTAVO_UNSUPPORTED, "these kernels lack: %.*s", (int)v.text.size,
                v.text.data);
  octavo_session *own = malloc(sizeof *own);
  if (own == NULL) return fail(s.host, OCTAVO_NO_RESOURCE, "no memory for a session");
  *own = s;
  *out = own;
  return OCTAVO_OK;
}

static void close_session(octavo_session *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < s->parameter_count; i++)
    free((void *)(uintptr_t)s->parameters[i].name.data);
  for (uint32_t i = 0; i < s->linear_count; i++) free((void *)(uintptr_t)s->linears[i].name.data);
  free(s->parameters);
  free(s->linears);
  free(s->pools);
  free(s);
}

/* ---- Parameters, linears and their slots. */

/* Gives an array room for one more element; copy_name copies a name. Both are false without memory.
 */
static int grow(void **array, uint32_t count, size_t size) {
  void *const larger_array = realloc(*array, (count + (size_t)1) * size);
  if (larger_array != NULL) *array = larger_array;
  return larger_array != NULL;
}

static int copy_name(octavo_str *out, octavo_str name) {
  char *const data = malloc(name.size + 1);
  if (data != NULL && name.size) memcpy(data, name.data, name.size);
  *out = (octavo_str){data, name.size};
  return data != NULL;
}

static octavo_status give(octavo_verdict *out, uint32_t decision, uint32_t reason,
                          octavo_str text) {
  const octavo_verdict v = verdict_of(OCTAVO_LEVEL_LAYER, decision, reason, text);
  if (out != NULL) answer(out, &v, sizeof v);
  return OCTAVO_OK;
}

static octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *desc,
                                   octavo_verdict *verdict, uint32_t *id) {
  octavo_parameter_desc d;
  OCTAVO_TAKE(d, desc);
  if (d.rows < 1 || d.cols < 1 || d.reserved != 0 ||
      (d.flags & ~(uint32_t)(OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN)))
    return fail(s->host, OCTAVO_INVALID, "parameter %.*s: an unknown flag, or no elements",
                (int)d.name.size, d.name.data);
  if (!is_float(d.dtype) || (!(d.flags & OCTAVO_PARAMETER_FROZEN) && !is_float(d.gradient_dtype)))
    return give(verdict, OCTAVO_DECLINE, OCTAVO_REASON_DTYPE,
                STR("weights and gradients are f32, bf16 or f16"));
  parameter p = {.n = d.rows, .k = d.cols, .dtype = d.dtype, .flags = d.flags};
  if (d.flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) {
    if (p.n > LARGEST_DIM || p.k > LARGEST_DIM)
      return give(verdict, OCTAVO_DECLINE, OCTAVO_REASON_SHAPE, STR("the weight is too large"));
    p.padded_n = round_up(p.n, s->alignment);
    p.padded_k = round_up(p.k, s->alignment);
    const octavo_weight_call call = {.slots = no_slots};
    weight_calls w;
    build_weight(s, &p, &call, &w);
    TRY(s->kernels->workspace_bytes(s->ctx, &w.quantize, &p.workspace));
  }
  if (!grow((void **)&s->parameters, s->parameter_count, sizeof p) || !copy_name(&p.name, d.name))
    return fail(s->host, OCTAVO_NO_RESOURCE, "no memory for a parameter");
  s->parameters[s->parameter_count] = p;
  *id = s->parameter_count++;
  return give(verdict, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
              STR("w in E4M3 with scales of blocks 128x128"));
}

/* Raises a workspace of kernels to that of a call, from its sizes at one and two row multiples. */
static octavo_status cover(const octavo_session *s, const void *one, const void *two,
                           octavo_extent *e) {
  uint64_t a = 0, b = 0;
  const uint64_t rows = (uint64_t)s->row_multiple;
  TRY(s->kernels->workspace_bytes(s->ctx, one, &a));
  TRY(s->kernels->workspace_bytes(s->ctx, two, &b));
  const uint64_t per_row = (b - a + rows - 1) / rows;
  e->bytes_per_row = larger(e->bytes_per_row, per_row);
  e->fixed_bytes = larger(e->fixed_bytes, a > per_row * rows ? a - per_row * rows : 0);
  return OCTAVO_OK;
}

/* Adds the backend's own part of a workspace. */
static void enclose(const octavo_session *s, const cursor *one, const cursor *two,
                    octavo_extent *e) {
  const uint64_t per_row = (two->used - one->used) / (uint64_t)s->row_multiple;
  e->bytes_per_row += per_row;
  e->fixed_bytes += one->used - per_row * (uint64_t)s->row_multiple;
}

static octavo_status make_plan(const octavo_session *s, const parameter *p,
                               octavo_linear_plan *plan) {
  forward_calls f[2];
  backward_calls b[2];
  octavo_tensor x[2], y[2], row = tensor(NULL, 1, p->n, p->n, OCTAVO_F32);
  octavo_tensor dw = tensor(NULL, p->n, p->k, p->k, OCTAVO_F32);
  for (int i = 0; i < 2; i++) {
    x[i] = tensor(NULL, s->row_multiple * (i + 1), p->k, p->k, OCTAVO_F32);
    y[i] = tensor(NULL, s->row_multiple * (i + 1), p->n, p->n, OCTAVO_F32);
    build_forward(s, p,
                  &(octavo_forward_call){.x = &x[i], .y = &y[i], .bias = &row, .slots = no_slots},
                  1, &f[i]);
    build_backward(s, p,
                   &(octavo_backward_call){.dy = &y[i], .dx = &x[i], .dw = &dw, .slots = no_slots},
                   0, &b[i]);
  }
  octavo_extent *const forward = &plan->forward_workspace, *const backward =
                                                               &plan->backward_workspace;
  *forward = *backward = (octavo_extent){(uint64_t)s->row_multiple, 0, 0};
  TRY(cover(s, &f[0].quantize, &f[1].quantize, forward));
  TRY(cover(s, &f[0].gemm, &f[1].gemm, forward));
  TRY(cover(s, &b[0].quantize, &b[1].quantize, backward));
  TRY(cover(s, &b[0].dgrad, &b[1].dgrad, backward));
  TRY(cover(s, &b[0].wgrad, &b[1].wgrad, backward));
  TRY(cover(s, &b[0].sum, &b[1].sum, backward));
  enclose(s, &f[0].at, &f[1].at, forward);
  enclose(s, &b[0].at, &b[1].at, backward);
  plan->saved =
      (octavo_extent){(uint64_t)s->alignment, (uint64_t)p->padded_k, region(p->padded_k * 4)};
  plan->weight_workspace = p->workspace;
  plan->gradient =
      p->flags & OCTAVO_PARAMETER_FROZEN ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  return OCTAVO_OK;
}

static octavo_status add_linear(octavo_session *s, const octavo_linear_desc *desc,
                                octavo_verdict *verdict, uint32_t *id) {
  octavo_linear_desc d;
  OCTAVO_TAKE(d, desc);
  if (d.flags != 0 || d.weight >= s->parameter_count ||
      !(s->parameters[d.weight].flags & OCTAVO_PARAMETER_LINEAR_WEIGHT))
    return fail(s->host, OCTAVO_INVALID,
                "linear %.*s: parameter %u is no weight of a linear, or an unknown flag",
                (int)d.name.size, d.name.data, d.weight);
  linear l = {.weight = d.weight,
              .warmup = s->options[OPTION_WARMUP],
              .plan = {sizeof l.plan, OCTAVO_KIND_LINEAR_PLAN}};
  for (uint64_t i = 0; i < d.option_count; i++) {
    const int option = find_option(&d.options[i]);
    if (option == OPTION_WARMUP)
      l.warmup = d.options[i].value.integer;
    else if (option < 0 || d.options[i].value.integer != s->options[option])
      return give(verdict, OCTAVO_DECLINE, OCTAVO_REASON_OPTION,
                  STR("apart from warmup, linears have the options of the session"));
  }
  TRY(make_plan(s, &s->parameters[d.weight], &l.plan));
  const octavo_extent *w[] = {&l.plan.forward_workspace, &l.plan.backward_workspace};
  for (int i = 0; i < 2; i++)
    if (w[i]->bytes_per_row > LARGEST_EXTENT / w[i]->row_multiple ||
        w[i]->fixed_bytes > LARGEST_EXTENT)
      return give(verdict, OCTAVO_DECLINE, OCTAVO_REASON_SHAPE,
                  STR("the workspace would be too large"));
  if (!grow((void **)&s->linears, s->linear_count, sizeof l) || !copy_name(&l.name, d.name))
    return fail(s->host, OCTAVO_NO_RESOURCE, "no memory for a linear");
  s->linears[s->linear_count] = l;
  *id = s->linear_count++;
  return give(verdict, OCTAVO_ACCEPT, OCTAVO_REASON_NONE,
              STR("x by rows, w by blocks, dy delayed"));
}

/* Access by quantize_weight, forward, backward and end_step, as a letter each. */
struct slot_kind {
  octavo_str name;
  uint32_t role, dtype, flags;
  char access[5];
};
#define SLOT(name, role, dtype, flags, access) \
  { OCTAVO_STR(name), OCTAVO_ROLE_##role, dtype, flags, access }

static const struct slot_kind parameter_slots[PARAMETER_SLOTS] = {
    [WEIGHT] = SLOT("weight", WEIGHT, 0, OCTAVO_SLOT_NATIVE, "R---"), /* in the host's dtype */
    [SCALE] = SLOT("weight_cache/scale_inv", SCALE_INV, OCTAVO_F32, 0, "WR--"),
    [CODES] = SLOT("weight_cache", WEIGHT_CACHE, OCTAVO_E4M3FN, 0, "WR--"),
    [SCALE_T] = SLOT("weight_cache_t/scale_inv", SCALE_INV, OCTAVO_F32, 0, "W-R-"),
    [CODES_T] = SLOT("weight_cache_t", WEIGHT_CACHE, OCTAVO_E4M3FN, 0, "W-R-"),
};

static const struct slot_kind pool_slots[POOL_SLOTS] = {
    [AMAX] = SLOT("dy/amax", AMAX, OCTAVO_F32, OCTAVO_SLOT_REDUCE, "--AU"),
    [HISTORY] = SLOT("dy/amax_history", AMAX_HISTORY, OCTAVO_F32, OCTAVO_SLOT_CHECKPOINT, "---U"),
    [DY_SCALE] = SLOT("dy/scale", SCALE, OCTAVO_F32, OCTAVO_SLOT_CHECKPOINT, "--RU"),
    [COUNTER] = SLOT("dy/counter", COUNTER, OCTAVO_F32, OCTAVO_SLOT_CHECKPOINT, "--RU"),
};

static const struct slot_kind nonfinite_slot =
    SLOT("nonfinite", NONFINITE, OCTAVO_F32, OCTAVO_SLOT_REDUCE, "AAAW");

static octavo_slot slot_of(const struct slot_kind *k, uint32_t id, uint32_t owner_kind,
                           uint32_t owner, int64_t rows, int64_t cols) {
  octavo_slot s =
      CALL(octavo_slot, SLOT, .id = id, .owner_kind = owner_kind, .owner = owner, .role = k->role,
           .dtype = k->dtype, .flags = k->flags, .scale_slot = OCTAVO_NONE, .rows = rows,
           .cols = cols, .name = k->name, .initial = k->role == OCTAVO_ROLE_SCALE);
  if (k->flags & OCTAVO_SLOT_REDUCE) s.combine = OCTAVO_COMBINE_MAX;
  for (int verb = 0; verb < 4; verb++) { /* the letters have the order of OCTAVO_ACCESS_... */
    static const char letters[] = "-RWUA";
    s.access[verb] = (uint8_t)(strchr(letters, k->access[verb]) - letters);
  }
  return s;
}

static octavo_status use(const octavo_slot_sink *sink, uint32_t kind, uint32_t owner, uint32_t slot,
                         uint32_t first, uint32_t count) {
  const octavo_slot_use u = {kind, owner, slot, first, count, 0};
  return sink->use(sink->ctx, &u);
}

static octavo_status emit_parameter(const parameter *p, uint32_t owner, uint32_t first,
                                    const octavo_slot_sink *sink) {
  const int64_t n = p->padded_n, k = p->padded_k;
  const int64_t shapes[PARAMETER_SLOTS][2] = {[WEIGHT] = {p->n, p->k},
                                              [SCALE] = {blocks(n), blocks(k)},
                                              [CODES] = {n, k},
                                              [SCALE_T] = {blocks(k), blocks(n)},
                                              [CODES_T] = {k, n}};
  for (uint32_t i = 0; i < PARAMETER_SLOTS; i++) {
    octavo_slot s = slot_of(&parameter_slots[i], first + i, OCTAVO_OWNER_PARAMETER, owner,
                            shapes[i][0], shapes[i][1]);
    if (i == WEIGHT) s.dtype = p->dtype;
    if (i == CODES || i == CODES_T) {
      s.scale_slot = first + i - 1;
      s.granularity = OCTAVO_BLOCK_128X128;
    }
    TRY(sink->slot(sink->ctx, &s));
    TRY(use(sink, OCTAVO_OWNER_PARAMETER, owner, first + i, 0, 0));
  }
  return use(sink, OCTAVO_OWNER_PARAMETER, owner, 0, 0, 0);
}

/* The pool of `count` linears, and their lists. */
static octavo_status emit_pool(const octavo_session *s, uint32_t pool, octavo_str *labels,
                               uint32_t count, const octavo_slot_sink *sink) {
  const uint32_t first = s->linears_sealed;
  for (uint32_t i = 0; i < count; i++) labels[i] = s->linears[first + i].name;
  for (uint32_t i = 0; i < POOL_SLOTS; i++) {
    octavo_slot p = slot_of(&pool_slots[i], pool + i, OCTAVO_OWNER_SESSION, 0,
                            i == HISTORY ? s->options[OPTION_HISTORY] : 1, count);
    p.labels = labels;
    TRY(sink->slot(sink->ctx, &p));
    TRY(use(sink, OCTAVO_OWNER_SESSION, 0, pool + i, 0, 0));
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t weight = s->parameters[s->linears[first + i].weight].first_slot;
    for (uint32_t j = SCALE; j < PARAMETER_SLOTS; j++)
      TRY(use(sink, OCTAVO_OWNER_LINEAR, first + i, weight + j, 0, 0));
    for (uint32_t j = 0; j < POOL_SLOTS; j++)
      if (j != HISTORY) TRY(use(sink, OCTAVO_OWNER_LINEAR, first + i, pool + j, i, 1));
    TRY(use(sink, OCTAVO_OWNER_LINEAR, first + i, 0, 0, 0));
  }
  return OCTAVO_OK;
}

/* Emits the objects since the last seal; slots are numbered from s->slot_count on. NONFINITE is
 * slot 0, and of the first seal. */
static octavo_status emit(octavo_session *s, octavo_str *labels, uint32_t *slot_count,
                          const octavo_slot_sink *sink) {
  const uint32_t count = s->linear_count - s->linears_sealed;
  uint32_t next = s->slot_count;
  if (next == 0) {
    const octavo_slot nonfinite = slot_of(&nonfinite_slot, next++, OCTAVO_OWNER_SESSION, 0, 1, 1);
    TRY(sink->slot(sink->ctx, &nonfinite));
    TRY(use(sink, OCTAVO_OWNER_SESSION, 0, 0, 0, 0));
  }
  for (uint32_t i = s->parameters_sealed; i < s->parameter_count; i++) {
    if (!(s->parameters[i].flags & OCTAVO_PARAMETER_LINEAR_WEIGHT)) continue;
    s->parameters[i].first_slot = next;
    TRY(emit_parameter(&s->parameters[i], i, next, sink));
    next += PARAMETER_SLOTS;
  }
  if (count != 0) TRY(emit_pool(s, next, labels, count, sink));
  *slot_count = next + (count != 0 ? POOL_SLOTS : 0);
  return OCTAVO_OK;
}

static octavo_status seal(octavo_session *s, const octavo_slot_sink *sink) {
  const uint32_t count = s->linear_count - s->linears_sealed;
  octavo_str *const labels = malloc((count + (size_t)1) * sizeof *labels);
  uint32_t slot_count = 0;
  if (labels == NULL || !grow((void **)&s->pools, s->pool_count, sizeof *s->pools)) {
    free(labels);
    return fail(s->host, OCTAVO_NO_RESOURCE, "no memory for a seal");
  }
  const octavo_status status = emit(s, labels, &slot_count, sink);
  free(labels);
  TRY(status);
  if (count != 0) s->pools[s->pool_count++] = count;
  s->slot_count = slot_count;
  s->parameters_sealed = s->parameter_count;
  s->linears_sealed = s->linear_count;
  return OCTAVO_OK;
}

static octavo_status linear_plan(const octavo_session *s, uint32_t id, octavo_linear_plan *out) {
  if (id >= s->linear_count) return fail(s->host, OCTAVO_INVALID, "no linear %u", id);
  if (id >= s->linears_sealed)
    return fail(s->host, OCTAVO_WRONG_STATE, "linear %u is not sealed", id);
  answer(out, &s->linears[id].plan, sizeof *out);
  return OCTAVO_OK;
}

/* ---- The verbs of a step. */

static octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->parameters_sealed)
    return fail(s->host, OCTAVO_INVALID, "no parameter %u", c->parameter);
  const parameter *p = &s->parameters[c->parameter];
  if (!(p->flags & OCTAVO_PARAMETER_LINEAR_WEIGHT)) return OCTAVO_OK;
  weight_calls w;
  build_weight(s, p, c, &w);
  return s->kernels->quantize(s->ctx, &w.quantize);
}

/* What a verb answers to this matrix. Null: it is not there. */
static octavo_status misfit(const octavo_tensor *t, int64_t rows, int64_t cols) {
  if (t == NULL) return OCTAVO_OK;
  if (rows < 0 || t->rows != rows || t->cols != cols ||
      (rows > 0 && (t->data == NULL || t->stride < cols)))
    return OCTAVO_INVALID;
  return is_float(t->dtype) && t->reserved == 0 ? OCTAVO_OK : OCTAVO_UNSUPPORTED;
}

static octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  if (c->linear >= s->linears_sealed)
    return fail(s->host, OCTAVO_INVALID, "no linear %u", c->linear);
  const parameter *p = &s->parameters[s->linears[c->linear].weight];
  octavo_status wrong =
      c->x == NULL || c->y == NULL ? OCTAVO_INVALID : misfit(c->x, c->x->rows, p->k);
  if (wrong == OCTAVO_OK) wrong = misfit(c->y, c->x->rows, p->n);
  if (wrong == OCTAVO_OK) wrong = misfit(c->bias, 1, p->n);
  if (wrong != OCTAVO_OK)
    return fail(s->host, wrong, "linear %u: x, y or bias has another shape, dtype or `reserved`",
                c->linear);
  const int64_t m = c->x->rows, k_blocks = blocks(p->padded_k);
  const uint64_t scales = (uint64_t)p->padded_k * sizeof(float),
                 gap = region(p->padded_k * 4) - scales;
  if (m == 0) return c->saved == NULL ? OCTAVO_OK : zero(s, c->stream, c->saved, scales + gap);
  forward_calls f;
  build_forward(s, p, c, c->saved != NULL, &f);
  if (c->saved != NULL) TRY(zero(s, c->stream, (char *)c->saved + scales, gap));
  TRY(s->kernels->quantize(s->ctx, &f.quantize));
  TRY(repeat_column(s, c->stream, f.row_scales, f.codes.rows, k_blocks));
  if (c->bias != NULL && f.bias.data != c->bias->data) {
    octavo_tensor part = f.bias;
    part.cols = p->n;
    TRY(zero_rows(s, c->stream, &f.bias));
    TRY(convert(s, c->stream, c->bias, &part, 0));
  }
  TRY(s->kernels->gemm(s->ctx, &f.gemm));
  if (f.d.data == c->y->data) return OCTAVO_OK;
  f.d.rows = m;
  f.d.cols = p->n;
  return convert(s, c->stream, &f.d, c->y, 0);
}

static octavo_status weight_gradient(const octavo_session *s, const parameter *p,
                                     const octavo_backward_call *c, backward_calls *b) {
  if (b->dw.data == c->dw->data) return s->kernels->gemm(s->ctx, &b->wgrad);
  octavo_tensor part = b->dw;
  part.rows = p->n;
  part.cols = p->k;
  if (b->wgrad.accumulate) {
    TRY(zero_rows(s, c->stream, &b->dw));
    TRY(convert(s, c->stream, c->dw, &part, 0));
  }
  TRY(s->kernels->gemm(s->ctx, &b->wgrad));
  return convert(s, c->stream, &part, c->dw, 0);
}

static octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *given) {
  if (given->linear >= s->linears_sealed)
    return fail(s->host, OCTAVO_INVALID, "no linear %u", given->linear);
  const linear *l = &s->linears[given->linear];
  const parameter *p = &s->parameters[l->weight];
  octavo_backward_call own, *c = &own;
  OCTAVO_TAKE(own, given);
  if (c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT) c->dw = NULL;
  if (l->plan.gradient == OCTAVO_GRADIENT_NONE) c->dw = NULL;
  const int64_t m = c->dy == NULL ? -1 : c->dy->rows;
  octavo_status wrong = m < 0 ? OCTAVO_INVALID : misfit(c->dy, m, p->n);
  if (wrong == OCTAVO_OK) wrong = misfit(c->dx, m, p->k);
  if (wrong == OCTAVO_OK) wrong = misfit(c->dw, p->n, p->k);
  if (wrong == OCTAVO_OK) wrong = misfit(c->db, 1, p->n);
  if (wrong != OCTAVO_OK)
    return fail(s->host, wrong,
                "linear %u: dy, dx, dw or db has another shape, dtype or `reserved`", c->linear);
  const uint32_t accumulate = (c->flags & OCTAVO_BACKWARD_OVERWRITE) == 0;
  if (m == 0) {
    if (c->dw != NULL && !accumulate) TRY(zero_rows(s, c->stream, c->dw));
    if (c->db != NULL && !accumulate) TRY(zero_rows(s, c->stream, c->db));
    return OCTAVO_OK;
  }
  backward_calls b;
  build_backward(s, p, c, l->warmup, &b);
  if (c->dx != NULL || c->dw != NULL) {
    TRY(s->kernels->quantize(s->ctx, &b.quantize));
  } else if (c->slots[L_AMAX] != NULL) {
    TRY(s->kernels->compute_amax(
        s->ctx, &CALL(octavo_compute_amax, COMPUTE_AMAX, .stream = c->stream, .in = c->dy,
                      .amax = c->slots[L_AMAX], .nonfinite = c->slots[L_NONFINITE])));
  }
  if (c->dx != NULL) {
    TRY(repeat(s, c->stream, b.dy_blocks.data, b.one.data,
               (uint64_t)(blocks(b.codes.rows) * b.dy_blocks.stride)));
    TRY(s->kernels->gemm(s->ctx, &b.dgrad));
    if (b.dx.data != c->dx->data) {
      b.dx.rows = m;
      b.dx.cols = p->k;
      TRY(convert(s, c->stream, &b.dx, c->dx, 0));
    }
  }
  if (c->dw != NULL) TRY(weight_gradient(s, p, c, &b));
  if (c->db == NULL) return OCTAVO_OK;
  TRY(s->kernels->sum_rows(s->ctx, &b.sum));
  return convert(s, c->stream, &b.sums, c->db, accumulate);
}

static octavo_status end_step(const octavo_session *s, const octavo_step_call *c) {
  if (s->slot_count == 0)
    return fail(s->host, OCTAVO_WRONG_STATE, "end_step before the first seal");
  void *const *pool = c->slots + 1;
  for (uint32_t i = 0; i < s->pool_count; i++, pool += POOL_SLOTS) {
    const octavo_delayed_scale_update u = CALL(
        octavo_delayed_scale_update, DELAYED_SCALE_UPDATE, .stream = c->stream, .amax = pool[AMAX],
        .history = pool[HISTORY], .scale = pool[DY_SCALE], .counter = pool[COUNTER],
        .n = s->pools[i], .length = (uint64_t)s->options[OPTION_HISTORY], .format_max = E5M2_MAX,
        .margin = (int32_t)s->options[OPTION_MARGIN], .use_max = 1, .rule = s->rule,
        .history_flags = OCTAVO_HISTORY_MSAMP);
    TRY(s->kernels->delayed_scale_update(s->ctx, &u));
  }
  return zero(s, c->stream, c->slots[0], sizeof(float));
}

/* ---- The plugin. */

static const octavo_backend backend = {
    sizeof backend, OCTAVO_KIND_BACKEND, list_options, check_session, open_session,
    add_parameter,  add_linear,          seal,         linear_plan,   quantize_weight,
    linear_forward, linear_backward,     end_step,     close_session};

static const void *get_interface(octavo_str id) {
  return equal(id, STR(OCTAVO_BACKEND_ID)) ? &backend : NULL;
}

static const octavo_plugin plugin = {
    sizeof plugin,          OCTAVO_KIND_PLUGIN,  OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR,
    OCTAVO_STR("rowblock"), OCTAVO_STR("1.0.0"), get_interface};

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &plugin;
  return OCTAVO_OK;
}
