/* layer.c: int8 for the kernels of the CPU: casts, and products that read codes either way.
 *
 * Each 32x32 block has one scale, a power of two. A product sums the 32 products of a block
 * exactly, and the blocks in fp32, in ascending order, each times its two scales. A square block is
 * a block of the transposed matrix, too. Whatever is not in this format is passed on by
 * OCTAVO_UNSUPPORTED: the kernels below execute it. They also convert dtypes for this layer.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "octavo/draft/layer.h"

enum {
  kInt8 = 0x0800, /* a dtype by tensor.h: DLPack's code of signed integers, and 8 bits */
  kSide = 32,
  kLargest = 127,
  kNan = -128
};
#define TEXT(literal) ((octavo_str)OCTAVO_STR(literal))

static octavo_status open_layer(octavo_layer_ctx *ctx, const octavo_verdict_sink *sink) {
  octavo_ability q = {.size = sizeof q, .kind = OCTAVO_KIND_ABILITY, .dtype = OCTAVO_BF16};
  octavo_verdict v = {.size = sizeof v, .kind = OCTAVO_KIND_VERDICT, .level = OCTAVO_LEVEL_DEVICE};
  q.call = OCTAVO_KIND_DEQUANTIZE;
  v.decision = OCTAVO_ACCEPT_EMULATED;
  v.text = TEXT("int8 in loops of the CPU");
  if (ctx->below->ability(ctx->below_ctx, &q) != OCTAVO_OK || q.decision == OCTAVO_DECLINE) {
    v.decision = OCTAVO_DECLINE;
    v.reason = OCTAVO_REASON_KERNEL;
    v.text = TEXT("expected kernels with dequantize, which converts dtypes for it");
    v.evidence = q.evidence;
  }
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

static octavo_status ability(void *ctx, octavo_ability *q) {
  (void)ctx;
  if (q->dtype != kInt8 && q->b_dtype != kInt8) return OCTAVO_UNSUPPORTED;
  const int casts = q->dtype == kInt8 && q->granularity == OCTAVO_BLOCK_32X32;
  const int multiplies = casts && q->b_dtype == kInt8 && q->b_granularity == OCTAVO_BLOCK_32X32;
  const int known = q->call == OCTAVO_KIND_QUANTIZE ? casts && q->flags == 0
                    : q->call == OCTAVO_KIND_GEMM   ? multiplies && q->flags < OCTAVO_GEMM_B_PACKED
                                                    : 0;
  q->decision = known ? OCTAVO_ACCEPT_EMULATED : OCTAVO_DECLINE;
  q->evidence = known ? TEXT("int8 in loops of the CPU") : TEXT("int8 has 32x32 scales only");
  return OCTAVO_OK;
}

static octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  const octavo_quantize *q = call; /* every call begins with size and kind */
  const octavo_gemm *g = call;
  const octavo_tensor *codes = q->kind == OCTAVO_KIND_QUANTIZE ? q->out
                               : q->kind == OCTAVO_KIND_GEMM   ? g->a
                                                               : NULL;
  (void)ctx;
  if (!codes || codes->dtype != kInt8) return OCTAVO_UNSUPPORTED;
  *bytes = 0;
  return OCTAVO_OK;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
/* What `t` has of the block that begins at a row and a column; without rows beyond it. */
static octavo_tensor part(const octavo_tensor *t, int64_t row, int64_t col) {
  octavo_tensor p = *t;
  p.rows = least(kSide, t->rows - row);
  p.cols = least(kSide, t->cols - col);
  if (p.rows < 1 || p.cols < 1) return (octavo_tensor){0};
  p.data = (char *)t->data + (row * t->stride + col) * (OCTAVO_DTYPE_BITS(t->dtype) / 8);
  return p;
}
typedef float block[kSide][kSide];
static octavo_tensor whole(block values, octavo_tensor shape) {
  return (octavo_tensor){values, shape.rows, shape.cols, kSide, OCTAVO_F32, 0};
}
/* out = in, or out += in, in the dtype of each. */
static octavo_status convert(void *ctx, octavo_tensor in, octavo_tensor out, uint32_t accumulate) {
  const octavo_layer_ctx *layer = ctx;
  octavo_dequantize c = {.size = sizeof c, .kind = OCTAVO_KIND_DEQUANTIZE, .in = &in, .out = &out};
  c.accumulate = accumulate;
  return in.rows > 0 ? layer->below->dequantize(layer->below_ctx, &c) : OCTAVO_OK;
}

/* The code of the smallest power of two with amax <= 127 of it. */
static uint8_t scale_code(float amax) {
  int exponent;
  if (amax == 0) return 127;
  if (frexpf(amax / kLargest, &exponent) == 0.5f) --exponent;
  return (uint8_t)(exponent < -127 ? 0 : exponent + 127);
}

/* What octavo/kernels.h says of fp32 holds in every floating-point mode of the calling thread. */
#define IN_DEFAULT_MODE(name, type)                     \
  static octavo_status name(void *ctx, const type *c) { \
    fenv_t mode;                                        \
    fegetenv(&mode);                                    \
    fesetenv(FE_DFL_ENV);                               \
    const octavo_status status = name##_own(ctx, c);    \
    fesetenv(&mode);                                    \
    return status;                                      \
  }

static octavo_status quantize_own(void *ctx, const octavo_quantize *c) {
  const octavo_tensor *out = c->out;
  const octavo_scale *scales = c->out_scale_inv;
  if (!out || out->dtype != kInt8 || c->out_t || c->in_scale_inv || c->amax || c->flags ||
      c->rounding || !scales || scales->granularity != OCTAVO_BLOCK_32X32)
    return OCTAVO_UNSUPPORTED;
  for (int64_t top = 0; top < out->rows; top += kSide)
    for (int64_t left = 0; left < out->cols; left += kSide) {
      block values = {{0}};
      const octavo_tensor in = part(c->in, top, left), to = part(out, top, left);
      const octavo_status status = convert(ctx, in, whole(values, in), 0);
      if (status != OCTAVO_OK) return status;
      float amax = 0;
      for (int i = 0; i < kSide * kSide; ++i) {
        const float value = fabsf(values[i / kSide][i % kSide]);
        if (isfinite(value) && value > amax) amax = value;
        if (c->nonfinite && !isfinite(value)) *c->nonfinite = 1;
      }
      const uint8_t code = scale_code(amax);
      ((uint8_t *)scales->data)[top / kSide * scales->stride + left / kSide] = code;
      for (int64_t r = 0; r < to.rows; ++r)
        for (int64_t i = 0; i < to.cols; ++i) {
          const float even = rintf(values[r][i] * ldexpf(1, 127 - code));
          ((int8_t *)to.data)[r * to.stride + i] =
              (int8_t)(isnan(even) ? kNan : fminf(fmaxf(even, -kLargest), kLargest));
        }
    }
  return OCTAVO_OK;
}
IN_DEFAULT_MODE(quantize, octavo_quantize)

/* The codes for rows `row` and columns `k` of an operand, which may be stored transposed, and their
 * scale. */
static float read_block(const octavo_tensor *t, const octavo_scale *scales, int turned, int64_t row,
                        int64_t k, block codes) {
  const int64_t top = turned ? k : row, left = turned ? row : k;
  const octavo_tensor from = part(t, top, left);
  memset(codes, 0, sizeof(block));
  for (int64_t r = 0; r < from.rows; ++r)
    for (int64_t i = 0; i < from.cols; ++i) {
      const int8_t code = ((const int8_t *)from.data)[r * from.stride + i];
      codes[turned ? i : r][turned ? r : i] = code == kNan ? NAN : code;
    }
  return ldexpf(1, ((uint8_t *)scales->data)[top / kSide * scales->stride + left / kSide] - 127);
}

static octavo_status gemm_own(void *ctx, const octavo_gemm *c) {
  const int a_km = c->layout & OCTAVO_GEMM_A_KM, b_kn = c->layout & OCTAVO_GEMM_B_KN;
  const int64_t length = a_km ? c->a->rows : c->a->cols;
  block a, b;
  if (c->a->dtype != kInt8 || c->b->dtype != kInt8 || c->bias_after ||
      (c->layout & OCTAVO_GEMM_B_PACKED))
    return OCTAVO_UNSUPPORTED;
  for (int64_t top = 0; top < c->d->rows; top += kSide)
    for (int64_t left = 0; left < c->d->cols; left += kSide) {
      block sums = {{0}}, bias = {{0}};
      for (int64_t k = 0; k < length; k += kSide) {
        const float scale = read_block(c->a, c->a_scale_inv, a_km, top, k, a) *
                            read_block(c->b, c->b_scale_inv, b_kn, left, k, b);
        for (int m = 0; m < kSide; ++m)
          for (int n = 0; n < kSide; ++n) {
            float dot = 0; /* exact: below 2^24 */
            for (int i = 0; i < kSide; ++i) dot += a[m][i] * b[n][i];
            sums[m][n] += dot * scale;
          }
      }
      octavo_status status = OCTAVO_OK;
      const octavo_tensor d = part(c->d, top, left);
      const octavo_tensor added = c->bias ? part(c->bias, 0, left) : (octavo_tensor){0};
      status = convert(ctx, added, whole(bias, added), 0);
      for (int i = 0; i < kSide * kSide; ++i) sums[i / kSide][i % kSide] += bias[0][i % kSide];
      if (status == OCTAVO_OK) status = convert(ctx, whole(sums, d), d, c->accumulate);
      if (status != OCTAVO_OK) return status;
    }
  return OCTAVO_OK;
}
IN_DEFAULT_MODE(gemm, octavo_gemm)

static const octavo_kernels calls = {.size = sizeof calls,
                                     .kind = OCTAVO_KIND_KERNELS,
                                     .ability = ability,
                                     .workspace_bytes = workspace_bytes,
                                     .quantize = quantize,
                                     .gemm = gemm};
const octavo_layer int8_layer = {.size = sizeof int8_layer,
                                 .kind = OCTAVO_KIND_LAYER,
                                 .open_layer = open_layer,
                                 .calls = &calls};
