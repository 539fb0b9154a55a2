/* kernels.h: a kernels table just large enough for the golden plugins, written to be obviously
 * right.
 *
 * A cast looks for the nearest of the format's values; a product is three loops. It is what a small
 * host brings along, so that no part of liboctavo is younger than that host.
 */
#ifndef OCTAVO_TESTS_KERNELS_H
#define OCTAVO_TESTS_KERNELS_H

#include <math.h>
#include <string.h>

#include "octavo/draft/msamp.h"
#include "octavo/draft/optimizer.h"
#include "octavo/kernels.h"

#ifdef OCTAVO_NEXT_ID
/* How many quantize calls came with the field of the next minor. */
static int quantize_with_next = 0;
#endif

static inline float decode(uint32_t dtype, uint8_t code) {
  const int mantissa_bits = dtype == OCTAVO_E5M2 ? 2 : 3, bias = dtype == OCTAVO_E5M2 ? 15 : 7;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  if (dtype == OCTAVO_E4M3FN ? (code & 0x7f) == 0x7f : exponent == 31) return NAN;
  const float value = exponent == 0 ? ldexpf((float)mantissa, 1 - bias - mantissa_bits)
                                    : ldexpf((float)(mantissa + (1 << mantissa_bits)),
                                             exponent - bias - mantissa_bits);
  return (code & 0x80) != 0 ? -value : value;
}

/* The nearest code, the even one of two; neighbours of one sign are consecutive. */
static inline uint8_t encode(uint32_t dtype, float value) {
  int best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const float now = fabsf(fabsf(value) - decode(dtype, (uint8_t)code));
    const float before = fabsf(fabsf(value) - decode(dtype, (uint8_t)best));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return (uint8_t)(value < 0 ? best | 0x80 : best);
}

static inline float element(const octavo_tensor *t, int64_t row, int64_t col) {
  const int64_t at = row * t->stride + col;
  return t->dtype == OCTAVO_F32 ? ((const float *)t->data)[at]
                                : decode(t->dtype, ((const uint8_t *)t->data)[at]);
}

static inline float tensor_scale(const octavo_scale *s) {
  return s == NULL ? 1.0f : *(const float *)s->data;
}

static octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  octavo_kernels_caps own;
  memset(&own, 0, sizeof own);
  own.kind = OCTAVO_KIND_KERNELS_CAPS;
  own.id = (octavo_str)OCTAVO_STR("tiny");
  own.flags = OCTAVO_CAPS_DETERMINISTIC | OCTAVO_CAPS_EMULATED;
  own.alignment = 1;
  own.size = out->size < sizeof own ? out->size : (uint32_t)sizeof own;
  memcpy(out, &own, own.size);
  (void)ctx;
  return OCTAVO_OK;
}

static octavo_status ability(void *ctx, octavo_ability *question) {
  (void)ctx;
  const int known = (question->dtype == OCTAVO_F32 || question->dtype == OCTAVO_E4M3FN ||
                     question->dtype == OCTAVO_E5M2) &&
                    question->granularity == OCTAVO_PER_TENSOR;
  const int is_copy = question->call == OCTAVO_KIND_COPY;
  question->decision = known || is_copy ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  return OCTAVO_OK;
}

static octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  (void)ctx, (void)call;
  *bytes = 0;
  return OCTAVO_OK;
}

static octavo_status quantize(void *ctx, const octavo_quantize *given) {
  octavo_quantize c;
  (void)ctx;
  OCTAVO_TAKE(c, given);
#ifdef OCTAVO_NEXT_ID
  if (OCTAVO_HAS(given, octavo_quantize, next_value) && given->next_value == OCTAVO_NEXT_MARK)
    ++quantize_with_next;
#endif
  if (c.rule != OCTAVO_RULE_QUOTIENT) return OCTAVO_UNSUPPORTED;
  float amax = 0;
  for (int64_t i = 0; i < c.in->rows; ++i)
    for (int64_t j = 0; j < c.in->cols; ++j) {
      const float value = fabsf(element(c.in, i, j));
      if (value > amax) amax = value;
      if (c.nonfinite != NULL && !isfinite(value)) *c.nonfinite = 1;
    }
  const float scale = amax > 0 && isfinite(amax) ? c.format_max / amax : 1;
  for (int64_t i = 0; i < c.in->rows; ++i)
    for (int64_t j = 0; j < c.in->cols; ++j) {
      const float value = element(c.in, i, j) * scale;
      if (c.out != NULL)
        ((uint8_t *)c.out->data)[i * c.out->stride + j] = encode(c.out->dtype, value);
      if (c.out_t != NULL)
        ((uint8_t *)c.out_t->data)[j * c.out_t->stride + i] = encode(c.out_t->dtype, value);
    }
  *(float *)c.out_scale_inv->data = 1 / scale;
  return OCTAVO_OK;
}

static octavo_status gemm(void *ctx, const octavo_gemm *given) {
  octavo_gemm c;
  (void)ctx;
  OCTAVO_TAKE(c, given);
  const int a_km = (c.layout & OCTAVO_GEMM_A_KM) != 0, b_kn = (c.layout & OCTAVO_GEMM_B_KN) != 0;
  const int64_t depth = a_km ? c.a->rows : c.a->cols;
  const float scale = tensor_scale(c.a_scale_inv) * tensor_scale(c.b_scale_inv);
  for (int64_t m = 0; m < c.d->rows; ++m)
    for (int64_t n = 0; n < c.d->cols; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += (a_km ? element(c.a, k, m) : element(c.a, m, k)) *
               (b_kn ? element(c.b, k, n) : element(c.b, n, k));
      float *d = (float *)c.d->data + m * c.d->stride + n;
      *d = (c.accumulate ? *d : 0) + sum * scale + (c.bias != NULL ? element(c.bias, 0, n) : 0);
    }
  return OCTAVO_OK;
}

static octavo_status dequantize(void *ctx, const octavo_dequantize *c) {
  (void)ctx;
  for (int64_t i = 0; i < c->out->rows; ++i)
    for (int64_t j = 0; j < c->out->cols; ++j) {
      float *out = (float *)c->out->data + i * c->out->stride + j;
      *out = (c->accumulate ? *out : 0) + element(c->in, i, j) * tensor_scale(c->scale_inv);
    }
  return OCTAVO_OK;
}

static octavo_status sum_rows(void *ctx, const octavo_sum *c) {
  (void)ctx;
  for (int64_t j = 0; j < c->in->cols; ++j) {
    float *out = (float *)c->out + j;
    if (!c->accumulate) *out = 0;
    for (int64_t i = 0; i < c->in->rows; ++i) *out += element(c->in, i, j);
  }
  return OCTAVO_OK;
}

static octavo_status copy(void *ctx, const octavo_copy *c) {
  (void)ctx;
  if (c->in == NULL)
    memset(c->out, 0, c->bytes);
  else
    memcpy(c->out, c->in, c->bytes);
  return OCTAVO_OK;
}

static octavo_status scale_values(void *ctx, const octavo_scale_values *c) {
  (void)ctx;
  for (uint64_t i = 0; i < c->n; ++i) c->out[i] = c->in[i] * c->factor;
  return OCTAVO_OK;
}

/* Plain f32 Adam with decoupled decay. */
static octavo_status adam_step(void *ctx, const octavo_adam_step *c) {
  (void)ctx;
  if (c->skip != NULL && *c->skip != 0) return OCTAVO_OK;
  for (uint64_t i = 0; i < c->count; ++i) {
    const octavo_adam_item *item = &c->items[i];
    const float *h = item->hyper;
    const float step = (float)++*item->step;
    const float correct1 = 1 - powf(h[OCTAVO_HYPER_BETA1], step);
    const float correct2 = 1 - powf(h[OCTAVO_HYPER_BETA2], step);
    for (int64_t at = 0; at < item->weight.rows * item->weight.cols; ++at) {
      float *w = (float *)item->weight.data + at;
      float *m = (float *)item->exp_avg.data + at, *v = (float *)item->exp_avg_sq.data + at;
      const float g = ((const float *)item->gradient.data)[at] * h[OCTAVO_HYPER_GRAD_SCALE];
      *m = h[OCTAVO_HYPER_BETA1] * *m + (1 - h[OCTAVO_HYPER_BETA1]) * g;
      *v = h[OCTAVO_HYPER_BETA2] * *v + (1 - h[OCTAVO_HYPER_BETA2]) * g * g;
      *w -= h[OCTAVO_HYPER_LR] * h[OCTAVO_HYPER_WEIGHT_DECAY] * *w;
      *w -= h[OCTAVO_HYPER_LR] * (*m / correct1) / (sqrtf(*v / correct2) + h[OCTAVO_HYPER_EPS]);
    }
  }
  return OCTAVO_OK;
}

/* What no golden plugin calls answers OCTAVO_UNSUPPORTED, since a host's table has no null
 * function. */
#define STUB(name, type)                                                       \
  static octavo_status unsupported_##name(void *ctx, const octavo_##type *c) { \
    (void)ctx, (void)c;                                                        \
    return OCTAVO_UNSUPPORTED;                                                 \
  }
STUB(compute_amax, compute_amax)
STUB(scale_from_amax, scale_from_amax)
STUB(delayed_scale_update, delayed_scale_update)
STUB(sum_quantized, sum_quantized)
STUB(prescale_update, prescale_update)
STUB(sum_of_squares, sum)
STUB(quantize_stats, quantize_stats)
STUB(prologue, prologue_call)
STUB(prologue_quantize, prologue_call)
STUB(gradient_scale, gradient_scale)
STUB(pack, pack)
#undef STUB

/* Of octavo/draft what the golden plugins call. */
static const void *get_extension(void *ctx, octavo_str id) {
  static const octavo_adam_kernels adam = {sizeof adam, OCTAVO_KIND_ADAM_KERNELS, adam_step,
                                           unsupported_gradient_scale, unsupported_sum_of_squares};
  static const octavo_msamp_kernels msamp = {sizeof msamp, OCTAVO_KIND_MSAMP_KERNELS,
                                             unsupported_sum_quantized, scale_values,
                                             unsupported_prescale_update};
  static const octavo_str adam_id = OCTAVO_STR(OCTAVO_ADAM_KERNELS_ID);
  static const octavo_str msamp_id = OCTAVO_STR(OCTAVO_MSAMP_KERNELS_ID);
  (void)ctx;
  if (id.size == adam_id.size && memcmp(id.data, adam_id.data, id.size) == 0) return &adam;
  return id.size == msamp_id.size && memcmp(id.data, msamp_id.data, id.size) == 0 ? &msamp : NULL;
}

static inline octavo_kernels tiny_kernels(void) {
  octavo_kernels t;
  memset(&t, 0, sizeof t);
  t.size = sizeof t;
  t.kind = OCTAVO_KIND_KERNELS;
#define STUB(name) t.name = unsupported_##name
  STUB(compute_amax), STUB(scale_from_amax), STUB(delayed_scale_update);
  STUB(quantize_stats), STUB(prologue);
  STUB(prologue_quantize), STUB(pack);
#undef STUB
  t.describe = describe;
  t.ability = ability;
  t.workspace_bytes = workspace_bytes;
  t.quantize = quantize;
  t.dequantize = dequantize;
  t.gemm = gemm;
  t.sum_rows = sum_rows;
  t.copy = copy;
  t.get_extension = get_extension;
  return t;
}

#endif
