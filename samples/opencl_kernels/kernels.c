/* kernels.c: FP8 kernels on OpenCL 1.2: one scale a tensor, current and delayed.
 *
 * Each function checks its call, then queues kernels of kernels.cl. OpenCL keeps the arguments of a
 * call in its kernel objects, so a call holds the lock while it queues; clEnqueueNDRangeKernel
 * itself locks and allocates.
 */
#include "device.h"

#include <string.h>

#include "octavo/plugin.h"

enum { kSide = 16, kTile = 64, kGroupX = 4, kGroupY = 16 }; /* as in kernels.cl */
enum { kItems = 64 }; /* of a work-group, where kernels.cl does not say it */

/* A call that is being queued: the lock is held from `start` to `finish`. */
struct call {
  const struct context *x;
  const char *verb;
  cl_kernel kernel;
  cl_uint next; /* argument */
  octavo_status status;
};

static struct call start(const void *ctx, const char *verb, const void *stream) {
  struct call c = {.x = ctx, .verb = verb};
  pthread_mutex_lock(&lock);
  if (stream)
    c.status = fail(c.x->host, OCTAVO_UNSUPPORTED,
                    "%s: stream = %p; expected null, the device's one queue", verb, stream);
  return c;
}
static octavo_status finish(const struct call *c) {
  pthread_mutex_unlock(&lock);
  return c->status;
}
/* Refuses the call unless `holds`. */
static void need(struct call *c, int holds, const char *expected) {
  if (c->status != OCTAVO_OK || holds) return;
  c->status = fail(c->x->host, OCTAVO_UNSUPPORTED, "%s: expected %s", c->verb, expected);
}

static void argument(struct call *c, size_t size, const void *value) {
  if (c->status != OCTAVO_OK) return;
  const cl_int e = clSetKernelArg(c->kernel, c->next++, size, value);
  if (e != CL_SUCCESS) c->status = refuse(c->x->host, c->verb, "clSetKernelArg", e);
}
#define NUMBER(c, type, value) argument(c, sizeof(type), &(type){value})

/* The buffer at an address, or null for null, and the first byte in it. */
static cl_mem buffer_at(struct call *c, const char *name, const void *at, uint64_t bytes,
                        cl_ulong *first) {
  *first = 0;
  if (c->status != OCTAVO_OK || !at || bytes == 0) return NULL;
  const struct block *b = find(c->x->device, (uintptr_t)at, bytes);
  if (b) *first = (uintptr_t)at - b->start;
  if (!b)
    c->status = fail(c->x->host, OCTAVO_INVALID,
                     "%s: %s = %p has no %llu bytes of this device; "
                     "expected memory that octavo.memory/1 of these kernels has allocated",
                     c->verb, name, at, (unsigned long long)bytes);
  return b ? b->buffer : NULL;
}
static void floats(struct call *c, const char *name, const void *at, uint64_t count) {
  cl_ulong first;
  const cl_mem buffer = buffer_at(c, name, at, count * sizeof(float), &first);
  argument(c, sizeof buffer, &buffer);
  NUMBER(c, cl_ulong, first / sizeof(float));
}
static void factor(struct call *c, const char *name, const octavo_scale *s) {
  need(c, !s || s->granularity == OCTAVO_PER_TENSOR, "one scale a tensor");
  floats(c, name, s ? s->data : NULL, 1);
}
static void matrix(struct call *c, const char *name, const octavo_tensor *t) {
  struct { /* as in kernels.cl */
    cl_ulong at;
    cl_long rows, cols, stride;
    cl_uint dtype, unused;
  } m = {0};
  cl_mem buffer = NULL;
  if (t) {
    const int64_t last = t->rows > 0 && t->cols > 0 ? (t->rows - 1) * t->stride + t->cols : 0;
    const uint64_t bytes = OCTAVO_DTYPE_BYTES(t->dtype, last);
    buffer = buffer_at(c, name, t->data, bytes, &m.at);
    m.rows = t->rows, m.cols = t->cols, m.stride = t->stride, m.dtype = t->dtype;
  }
  argument(c, sizeof buffer, &buffer);
  argument(c, sizeof m, &m);
}

static void take(struct call *c, enum kernel which) {
  c->kernel = c->x->device->kernels[which];
  c->next = 0;
}
/* groups * items work-items, in each of two dimensions. */
static void launch(struct call *c, int64_t groups_x, int64_t groups_y, size_t x, size_t y) {
  if (c->status != OCTAVO_OK || groups_x == 0 || groups_y == 0) return;
  const size_t all[] = {(size_t)groups_x * x, (size_t)groups_y * y}, group[] = {x, y};
  const cl_int e =
      clEnqueueNDRangeKernel(c->x->device->queue, c->kernel, 2, NULL, all, group, 0, NULL, NULL);
  if (e != CL_SUCCESS) c->status = refuse(c->x->host, c->verb, "clEnqueueNDRangeKernel", e);
}
static int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

static octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  (void)ctx;
  out->id = TEXT(OCTAVO_PLUGIN_ID);
  out->flags = OCTAVO_CAPS_EXACT_GEMM | OCTAVO_CAPS_DETERMINISTIC | OCTAVO_CAPS_EMULATED;
  out->alignment = 1;
  return OCTAVO_OK;
}
static int is_code(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}
static int is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}
static int is_value(uint32_t dtype) {
  return is_plain(dtype) || is_code(dtype);
}
static int executes(const octavo_ability *q) {
  if (q->granularity != OCTAVO_PER_TENSOR || q->b_granularity != OCTAVO_PER_TENSOR) return 0;
  switch (q->call) {
    case OCTAVO_KIND_QUANTIZE: return is_code(q->dtype) && q->flags == 0;
    case OCTAVO_KIND_GEMM:
      return is_value(q->dtype) && is_value(q->b_dtype) && q->flags < OCTAVO_GEMM_B_PACKED;
    case OCTAVO_KIND_DEQUANTIZE:
    case OCTAVO_KIND_COMPUTE_AMAX:
    case OCTAVO_KIND_SUM: return is_value(q->dtype);
    default: return q->call == OCTAVO_KIND_COPY || q->call == OCTAVO_KIND_DELAYED_SCALE_UPDATE;
  }
}
static octavo_status ability(void *ctx, octavo_ability *q) {
  (void)ctx;
  const int known = executes(q);
  q->decision = known ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  q->evidence = known ? TEXT("") : TEXT(OCTAVO_PLUGIN_ID " does not have it");
  return OCTAVO_OK;
}
static octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  (void)ctx, (void)call;
  *bytes = 0;
  return OCTAVO_OK;
}

static void need_value(struct call *c, uint32_t dtype) {
  need(c, is_value(dtype), "in.dtype float32, bfloat16, float16 or a code");
}
static void measure(struct call *c, const octavo_tensor *in, const float *scale_inv) {
  take(c, k_measure);
  matrix(c, "in", in);
  floats(c, "in_scale_inv", scale_inv, 1);
  argument(c, sizeof(cl_mem), &c->x->device->seen);
  launch(c, in->cols > 4096 ? 16 : divide_up(in->cols, 256), in->rows > 64 ? 64 : in->rows, kItems,
         1);
}

/* What a tensor's measure leads to. The fields of q that it reads may be those of another call. */
static void settle(struct call *c, const octavo_quantize *q) {
  const octavo_scale *inverse = q->out_scale_inv, *inverse_t = q->out_t_scale_inv;
  take(c, k_settle);
  argument(c, sizeof(cl_mem), &c->x->device->seen);
  floats(c, "amax", q->amax, 1);
  floats(c, "nonfinite", q->nonfinite, 1);
  floats(c, "scale", q->scale, 1);
  floats(c, "counter", q->counter, 1);
  factor(c, "out_scale_inv", q->out || q->out_t ? inverse : NULL);
  factor(c, "out_t_scale_inv", q->out_t ? inverse_t : NULL);
  NUMBER(c, cl_float, q->window);
  NUMBER(c, cl_float, q->format_max);
  NUMBER(c, cl_float, q->eps);
  NUMBER(c, cl_uint, q->rule);
  launch(c, 1, 1, 1, 1);
}

static octavo_status quantize(void *ctx, const octavo_quantize *q) {
  struct call c = start(ctx, "quantize", q->stream);
  const octavo_tensor *in = q->in, *out = q->out, *out_t = q->out_t;
  need_value(&c, in->dtype);
  need(&c, (!out || is_code(out->dtype)) && (!out_t || is_code(out_t->dtype)),
       "codes of float8_e4m3fn or float8_e5m2");
  need(&c, q->rule <= OCTAVO_RULE_RECIPROCAL, "the rule given, quotient, pow2 or reciprocal");
  need(&c, q->flags == 0 && q->rounding == OCTAVO_ROUND_NEAREST_EVEN,
       "no flags, and the rounding to nearest even");
  if (q->rule != OCTAVO_RULE_GIVEN || q->amax || q->nonfinite) measure(&c, in, q->in_scale_inv);
  settle(&c, q);
  take(&c, k_cast);
  matrix(&c, "in", in);
  floats(&c, "in_scale_inv", q->in_scale_inv, 1);
  argument(&c, sizeof(cl_mem), &c.x->device->seen);
  matrix(&c, "out", out);
  matrix(&c, "out_t", out_t);
  int64_t rows = out ? out->rows : 0, cols = out ? out->cols : 0;
  if (out_t && out_t->cols > rows) rows = out_t->cols;
  if (out_t && out_t->rows > cols) cols = out_t->rows;
  launch(&c, divide_up(cols, kSide), divide_up(rows, kSide), kSide, kSide);
  return finish(&c);
}

static octavo_status compute_amax(void *ctx, const octavo_compute_amax *a) {
  struct call c = start(ctx, "compute_amax", a->stream);
  const octavo_quantize nothing = {.amax = a->amax, .nonfinite = a->nonfinite};
  need_value(&c, a->in->dtype);
  const octavo_scale *s = a->in_scale_inv;
  need(&c, !s || s->granularity == OCTAVO_PER_TENSOR, "one scale a tensor");
  measure(&c, a->in, s ? s->data : NULL);
  settle(&c, &nothing);
  return finish(&c);
}

static octavo_status dequantize(void *ctx, const octavo_dequantize *d) {
  struct call c = start(ctx, "dequantize", d->stream);
  need(&c, is_value(d->in->dtype) && is_plain(d->out->dtype),
       "out.dtype float32, bfloat16 or float16");
  take(&c, k_dequantize);
  matrix(&c, "in", d->in);
  factor(&c, "scale_inv", d->scale_inv);
  matrix(&c, "out", d->out);
  NUMBER(&c, cl_uint, d->accumulate);
  launch(&c, divide_up(d->in->cols, kItems), d->in->rows, kItems, 1);
  return finish(&c);
}

static octavo_status delayed_scale_update(void *ctx, const octavo_delayed_scale_update *u) {
  struct call c = start(ctx, "delayed_scale_update", u->stream);
  need(&c, u->rule >= OCTAVO_RULE_QUOTIENT && u->rule <= OCTAVO_RULE_RECIPROCAL,
       "the rule quotient, pow2 or reciprocal");
  take(&c, k_update);
  floats(&c, "amax", u->amax, u->n);
  floats(&c, "history", u->history, u->n * u->length);
  floats(&c, "scale", u->scale, u->n);
  floats(&c, "counter", u->counter, u->n);
  NUMBER(&c, cl_ulong, u->n);
  NUMBER(&c, cl_ulong, u->length);
  NUMBER(&c, cl_float, u->format_max);
  NUMBER(&c, cl_int, u->margin);
  NUMBER(&c, cl_uint, u->use_max);
  NUMBER(&c, cl_uint, u->rule);
  NUMBER(&c, cl_uint, u->history_flags);
  launch(&c, divide_up((int64_t)u->n, kItems), 1, kItems, 1);
  return finish(&c);
}

static octavo_status gemm(void *ctx, const octavo_gemm *g) {
  struct call c = start(ctx, "gemm", g->stream);
  need(&c, is_value(g->a->dtype) && is_value(g->b->dtype) && is_plain(g->d->dtype),
       "codes or plain operands, and d.dtype float32, bfloat16 or float16");
  need(&c, g->layout < OCTAVO_GEMM_B_PACKED, "b without packing");
  take(&c, k_gemm);
  matrix(&c, "a", g->a);
  matrix(&c, "b", g->b);
  matrix(&c, "d", g->d);
  matrix(&c, "bias", g->bias);
  factor(&c, "a_scale_inv", g->a_scale_inv);
  factor(&c, "b_scale_inv", g->b_scale_inv);
  NUMBER(&c, cl_uint, g->accumulate);
  NUMBER(&c, cl_uint, g->bias_after);
  NUMBER(&c, cl_uint, g->layout);
  launch(&c, divide_up(g->d->cols, kTile), divide_up(g->d->rows, kTile), kGroupX, kGroupY);
  return finish(&c);
}

static octavo_status sum_rows(void *ctx, const octavo_sum *s) {
  struct call c = start(ctx, "sum_rows", s->stream);
  need_value(&c, s->in->dtype);
  take(&c, k_sum_rows);
  matrix(&c, "in", s->in);
  factor(&c, "in_scale_inv", s->in_scale_inv);
  floats(&c, "out", s->out, (uint64_t)s->in->cols);
  NUMBER(&c, cl_uint, s->accumulate);
  launch(&c, divide_up(s->in->cols, kItems), 1, kItems, 1);
  return finish(&c);
}

static octavo_status copy(void *ctx, const octavo_copy *m) {
  struct call c = start(ctx, "copy", m->stream);
  cl_ulong out_at, in_at;
  const cl_mem out = buffer_at(&c, "out", m->out, m->bytes, &out_at);
  const cl_mem in = buffer_at(&c, "in", m->in, m->bytes, &in_at);
  if (c.status == OCTAVO_OK && m->bytes > 0) {
    const cl_command_queue queue = c.x->device->queue;
    const cl_uchar zero = 0;
    const cl_int e =
        in ? clEnqueueCopyBuffer(queue, in, out, in_at, out_at, m->bytes, 0, NULL, NULL)
           : clEnqueueFillBuffer(queue, out, &zero, 1, out_at, m->bytes, 0, NULL, NULL);
    if (e != CL_SUCCESS) c.status = refuse(c.x->host, c.verb, "the queue", e);
  }
  return finish(&c);
}

static const octavo_kernels kTable = {.size = sizeof(octavo_kernels),
                                      .kind = OCTAVO_KIND_KERNELS,
                                      .probe_device = probe_device,
                                      .open_device = open_device,
                                      .close_device = close_device,
                                      .describe = describe,
                                      .ability = ability,
                                      .workspace_bytes = workspace_bytes,
                                      .quantize = quantize,
                                      .dequantize = dequantize,
                                      .compute_amax = compute_amax,
                                      .delayed_scale_update = delayed_scale_update,
                                      .gemm = gemm,
                                      .sum_rows = sum_rows,
                                      .copy = copy};

static int is_text(octavo_str id, const char *text) {
  return id.size == strlen(text) && memcmp(id.data, text, id.size) == 0;
}
static const void *get_interface(octavo_str id) {
  if (is_text(id, OCTAVO_KERNELS_ID)) return &kTable;
  return is_text(id, OCTAVO_MEMORY_ID) ? &kMemory : NULL;
}
static const octavo_plugin kPlugin = {.size = sizeof(octavo_plugin),
                                      .kind = OCTAVO_KIND_PLUGIN,
                                      .abi_major = OCTAVO_ABI_MAJOR,
                                      .abi_minor = OCTAVO_TARGET_MINOR,
                                      .id = OCTAVO_STR(OCTAVO_PLUGIN_ID),
                                      .version = OCTAVO_STR(OCTAVO_PLUGIN_VERSION),
                                      .get_interface = get_interface};

octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  if (!OCTAVO_HOST_FITS(host)) return OCTAVO_INCOMPATIBLE;
  *out = &kPlugin;
  return OCTAVO_OK;
}
