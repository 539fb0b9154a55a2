/* kernels.c: the least kernels that train: FP8 with one scale a tensor, current scaling.
 *
 * The device is a stand-in, whose memory is the CPU's and whose streams finish every call at once.
 * Put yours where the loops are. Every number is fixed by octavo/kernels.h to the last bit, but the
 * order of a product's additions, so compile without fused multiply-adds.
 */
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "octavo/kernels.h"
#include "octavo/memory.h"
#include "octavo/plugin.h"

struct format {
  int mantissa, bias;
  uint8_t largest; /* finite code */
  float smallest;  /* number above 0 */
};
static struct format format_of(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN ? (struct format){3, 7, 0x7E, 0x1p-9f}
                                : (struct format){2, 15, 0x7B, 0x1p-16f};
}

/* Nearest, ties to even, with subnormals; overflow and infinity give the largest code, and a NaN
 * has the sign of `unscaled`, whatever made it. */
static uint8_t encode(uint32_t dtype, float unscaled, float scale) {
  const struct format f = format_of(dtype);
  const float value = unscaled * scale;
  const uint8_t sign = signbit(isnan(value) ? unscaled : value) ? 0x80 : 0;
  if (!isfinite(value)) return sign | (isnan(value) ? 0x7F : f.largest);
  if (value == 0) return sign;
  int exponent;
  const float fraction = frexpf(fabsf(value), &exponent); /* in [0.5, 1) */
  const int lowest = 2 - f.bias; /* frexp's exponent of the smallest normal number */
  const int shift = exponent < lowest ? f.mantissa + 1 - (lowest - exponent) : f.mantissa + 1;
  const int base = exponent < lowest ? 0 : (exponent - lowest) << f.mantissa;
  const long code = base + (long)rintf(ldexpf(fraction, shift)); /* the only rounding */
  return sign | (uint8_t)(code > f.largest ? f.largest : code);
}
static float decode(uint32_t dtype, uint8_t code) {
  const struct format f = format_of(dtype);
  const int exponent = (code & 0x7F) >> f.mantissa, low = code & ((1 << f.mantissa) - 1);
  const float sign = code & 0x80 ? -1.0f : 1.0f;
  if ((code & 0x7F) > f.largest) return dtype == OCTAVO_E5M2 && low == 0 ? sign * INFINITY : NAN;
  const int64_t units = exponent == 0 ? low : (int64_t)(low + (1 << f.mantissa)) << (exponent - 1);
  return sign * (float)units * f.smallest;
}

static float decoded[2][256]; /* open_device writes it, with the same numbers each time */

static int is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32; /* next: bfloat16 and float16 */
}
static float load(const octavo_tensor *t, int64_t row, int64_t col) {
  const int64_t at = row * t->stride + col;
  return is_plain(t->dtype) ? ((const float *)t->data)[at]
                            : decoded[t->dtype == OCTAVO_E5M2][((const uint8_t *)t->data)[at]];
}

enum { kDeviceType = 12, kDevices = 1 }; /* DLPack's type, as in the manifest; how many there are */

struct device {
  const octavo_host *host;
};

#define TEXT(literal) ((octavo_str)OCTAVO_STR(literal))

static octavo_status probe_device(octavo_device d, const octavo_verdict_sink *sink) {
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT, .level = OCTAVO_LEVEL_DEVICE};
  v.decision = OCTAVO_ACCEPT_EMULATED;
  v.text = TEXT("the device computes FP8 in fp32 arithmetic");
  v.evidence = TEXT("a stand-in on the CPU"); /* the device's name, for reports */
  if (d.type != kDeviceType || d.index < 0 || d.index >= kDevices) {
    v.decision = OCTAVO_DECLINE;
    v.reason = OCTAVO_REASON_DEVICE;
    v.text = TEXT("there is no such device: expected index 0");
  }
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status fail(const struct device *d, octavo_status code, const char *text) {
  octavo_diagnostic m = {.size = sizeof m, .kind = OCTAVO_KIND_DIAGNOSTIC, .code = code};
  m.severity = OCTAVO_SEVERITY_ERROR;
  m.domain = TEXT("kernels_plugin");
  m.text = (octavo_str){text, strlen(text)};
  d->host->diagnose(d->host->ctx, &m);
  return code;
}

static octavo_status open_device(octavo_device d, const octavo_host *host, void **ctx) {
  const int is_there = d.type == kDeviceType && d.index >= 0 && d.index < kDevices;
  struct device none = {host}, *opened = is_there ? malloc(sizeof *opened) : NULL;
  if (!opened) return fail(&none, OCTAVO_UNSUPPORTED, "open_device: no such device, or no memory");
  for (int i = 0; i < 512; ++i)
    decoded[i / 256][i % 256] = decode(i < 256 ? OCTAVO_E4M3FN : OCTAVO_E5M2, (uint8_t)i);
  *opened = none, *ctx = opened;
  return OCTAVO_OK;
}

static octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  (void)ctx, out->id = TEXT("kernels_plugin");
  out->flags = OCTAVO_CAPS_DETERMINISTIC | OCTAVO_CAPS_EMULATED;
  out->alignment = 1;
  return OCTAVO_OK;
}

static int is_code(uint32_t dtype) {
  return dtype == OCTAVO_E4M3FN || dtype == OCTAVO_E5M2;
}
/* What these kernels execute: a backend that needs more is refused before it runs. */
static int executes(const octavo_ability *q) {
  if (q->granularity != OCTAVO_PER_TENSOR || q->b_granularity != OCTAVO_PER_TENSOR) return 0;
  switch (q->call) {
    case OCTAVO_KIND_QUANTIZE: return is_code(q->dtype) && q->flags == 0;
    case OCTAVO_KIND_GEMM:
      if (is_plain(q->dtype) && is_plain(q->b_dtype)) return q->flags < OCTAVO_GEMM_B_PACKED;
      return is_code(q->dtype) && is_code(q->b_dtype) && q->flags == 0;
    case OCTAVO_KIND_SUM: return is_plain(q->dtype);
    default: return q->call == OCTAVO_KIND_COPY;
  }
}
static octavo_status ability(void *ctx, octavo_ability *q) {
  const int known = executes(q);
  q->decision = known ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  q->evidence = known ? TEXT("") : TEXT("kernels_plugin does not have it");
  return (void)ctx, OCTAVO_OK;
}
static octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  *bytes = 0;
  return (void)ctx, (void)call, OCTAVO_OK;
}

/* What octavo/kernels.h says of fp32 holds in every floating-point mode of the calling thread. */
static fenv_t default_mode(void) {
  fenv_t mode;
  fegetenv(&mode), fesetenv(FE_DFL_ENV);
  return mode;
}
static void write_codes(octavo_tensor *out, const octavo_tensor *in, float scale, int turned) {
  for (int64_t r = 0; out && r < out->rows; ++r)
    for (int64_t c = 0; c < out->cols; ++c) {
      const int64_t row = turned ? c : r, col = turned ? r : c;
      const int is_there = row < in->rows && col < in->cols;
      ((uint8_t *)out->data)[r * out->stride + c] =
          encode(out->dtype, is_there ? load(in, row, col) : 0.0f, is_there ? scale : 1.0f);
    }
}

static int is_output(const octavo_tensor *t, const octavo_scale *s) {
  return (!t || is_code(t->dtype)) && (!s || s->granularity == OCTAVO_PER_TENSOR);
}

static octavo_status quantize(void *ctx, const octavo_quantize *c) {
  const octavo_tensor *in = c->in;
  if (!is_plain(in->dtype) || c->in_scale_inv || c->counter || c->flags || c->rounding ||
      c->rule > OCTAVO_RULE_QUOTIENT || !is_output(c->out, c->out_scale_inv) ||
      !is_output(c->out_t, c->out_t_scale_inv))
    return fail(ctx, OCTAVO_UNSUPPORTED, "quantize: expected float32, one scale and its rule");
  const fenv_t mode = default_mode();
  float amax = 0, nonfinite = 0;
  for (int64_t r = 0; r < in->rows; ++r)
    for (int64_t i = 0; i < in->cols; ++i) {
      const float value = fabsf(load(in, r, i));
      if (value > amax) amax = value; /* a NaN is no maximum */
      if (!isfinite(value)) nonfinite = 1;
    }
  float scale = c->scale ? *c->scale : 1.0f, amax_used = amax < c->eps ? c->eps : amax;
  if (c->rule == OCTAVO_RULE_QUOTIENT && amax_used > 0 && !isinf(amax_used))
    scale = fminf(c->format_max / amax_used, 0x1.fffffep127f);
  write_codes(c->out, in, scale, 0);
  write_codes(c->out_t, in, scale, 1);
  if (c->out_scale_inv && (c->out || c->out_t)) *(float *)c->out_scale_inv->data = 1.0f / scale;
  if (c->out_t_scale_inv && c->out_t) *(float *)c->out_t_scale_inv->data = 1.0f / scale;
  if (c->amax && amax > *c->amax) *c->amax = amax; /* atomically, where calls run at once */
  if (c->nonfinite && nonfinite > 0) *c->nonfinite = 1;
  return fesetenv(&mode), OCTAVO_OK;
}

/* At most one scale each; codes have K contiguous. */
static int is_operand(const octavo_tensor *t, const octavo_scale *scale_inv, int turned) {
  const int has_one = !scale_inv || scale_inv->granularity == OCTAVO_PER_TENSOR;
  return has_one && (is_plain(t->dtype) || (is_code(t->dtype) && !turned));
}
static float value_of(const octavo_scale *s) {
  return s ? *(const float *)s->data : 1.0f;
}

static octavo_status gemm(void *ctx, const octavo_gemm *c) {
  const int a_km = c->layout & OCTAVO_GEMM_A_KM, b_kn = c->layout & OCTAVO_GEMM_B_KN;
  if (!is_operand(c->a, c->a_scale_inv, a_km) || !is_operand(c->b, c->b_scale_inv, b_kn) ||
      (c->layout & OCTAVO_GEMM_B_PACKED) || c->bias_after || !is_plain(c->d->dtype) ||
      (c->bias && !is_plain(c->bias->dtype)))
    return fail(ctx, OCTAVO_UNSUPPORTED, "gemm: expected codes with one scale, or plain operands");
  const fenv_t mode = default_mode();
  const float scale = value_of(c->a_scale_inv) * value_of(c->b_scale_inv);
  const int64_t length = a_km ? c->a->rows : c->a->cols;
  for (int64_t m = 0; m < c->d->rows; ++m)
    for (int64_t n = 0; n < c->d->cols; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < length; ++k)
        sum += load(c->a, a_km ? k : m, a_km ? m : k) * load(c->b, b_kn ? k : n, b_kn ? n : k);
      float value = sum * scale;
      if (c->bias) value += load(c->bias, 0, n);
      float *out = (float *)c->d->data + m * c->d->stride + n;
      *out = c->accumulate ? *out + value : value;
    }
  return fesetenv(&mode), OCTAVO_OK;
}

static octavo_status sum_rows(void *ctx, const octavo_sum *c) {
  if (!is_plain(c->in->dtype) || c->in_scale_inv)
    return fail(ctx, OCTAVO_UNSUPPORTED, "sum_rows: expected float32");
  const fenv_t mode = default_mode();
  float *out = c->out;
  for (int64_t i = 0; i < c->in->cols; ++i) {
    double total = 0, segment = 0, piece = 0; /* of all, 256 and 32 rows */
    for (int64_t r = 0; r < c->in->rows; ++r) {
      piece += load(c->in, r, i);
      const int last = r + 1 == c->in->rows;
      if (last || (r + 1) % 32 == 0) segment += piece, piece = 0;
      if (last || (r + 1) % 256 == 0) total += segment, segment = 0;
    }
    out[i] = c->accumulate ? out[i] + (float)total : (float)total;
  }
  return fesetenv(&mode), OCTAVO_OK;
}

static octavo_status copy(void *ctx, const octavo_copy *c) {
  if (c->bytes > 0) c->in ? memmove(c->out, c->in, c->bytes) : memset(c->out, 0, c->bytes);
  return (void)ctx, OCTAVO_OK;
}

static octavo_status allocate(void *ctx, uint64_t bytes, void **out) {
  *out = bytes > 0 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
  return *out || bytes == 0 ? OCTAVO_OK : fail(ctx, OCTAVO_NO_RESOURCE, "allocate: no memory");
}
static void release(void *ctx, void *data) {
  (void)ctx, free(data);
}
static octavo_status copy_now(void *ctx, void *to, const void *from, uint64_t bytes) {
  if (bytes > 0) memcpy(to, from, bytes);
  return (void)ctx, OCTAVO_OK;
}
static octavo_status synchronize(void *ctx) {
  return (void)ctx, OCTAVO_OK;
}

static const octavo_kernels kKernels = {.size = sizeof(octavo_kernels),
                                        .kind = OCTAVO_KIND_KERNELS,
                                        .probe_device = probe_device,
                                        .open_device = open_device,
                                        .close_device = free,
                                        .describe = describe,
                                        .ability = ability,
                                        .workspace_bytes = workspace_bytes,
                                        .quantize = quantize,
                                        .gemm = gemm,
                                        .sum_rows = sum_rows,
                                        .copy = copy};
static const octavo_memory kMemory = {
    sizeof(octavo_memory), OCTAVO_KIND_MEMORY, allocate, release, copy_now, synchronize};
static int is_text(octavo_str id, const char *text) {
  return id.size == strlen(text) && memcmp(id.data, text, id.size) == 0;
}
static const void *get_interface(octavo_str id) {
  if (is_text(id, OCTAVO_KERNELS_ID)) return &kKernels;
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
