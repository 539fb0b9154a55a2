/* fprop, dgrad and wgrad of the reference backend: cast with current scaling, then multiply.
 *
 * One function lays out each verb's workspace, for the plan with a null base and for the verb with
 * a real one, so the sizes that are stated and those that are used cannot disagree.
 */
#include <string.h>

#include "reference.h"

/* Which kernel operands a call keeps in its workspace; sizes in elements of M, N, K. */
typedef struct buffers {
  octavo_tensor x, x_t, w, w_t, dy, dy_t; /* codes */
  octavo_scale x_scale_inv, w_scale_inv, dy_scale_inv;
  octavo_tensor column_sums; /* f32 [1, N] */
  void *kernel;              /* workspace of one kernel at a time */
} buffers;

/* Hands out workspace in aligned pieces; with base null it only measures. */
typedef struct carver {
  char *base;
  uint64_t used;
  octavo_status status; /* the first failure of the kernels to state a size */
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
  const octavo_scale s = OCTAVO_SCALE(carve(c, sizeof(float)), 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
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

static uint64_t gemm_bytes(const octavo_session *s, carver *c, int64_t m, int64_t n, int64_t k) {
  const octavo_tensor a = {NULL, m, k, k, OCTAVO_E4M3FN, 0};
  const octavo_tensor b = {NULL, n, k, k, OCTAVO_E4M3FN, 0};
  octavo_tensor d = {NULL, m, n, n, OCTAVO_F32, 0};
  octavo_gemm g = gemm_of(&a, NULL, &b, NULL, &d, NULL, NULL);
  uint64_t bytes = 0;
  const octavo_status status = s->desc.kernels->workspace_bytes(s->desc.kernels_ctx, &g, &bytes);
  if (c->status == OCTAVO_OK) c->status = status;
  return status == OCTAVO_OK ? bytes : 0;
}

static buffers forward_buffers(const octavo_session *s, carver *c, int64_t m, int64_t n,
                               int64_t k) {
  buffers b;
  memset(&b, 0, sizeof b);
  b.x_scale_inv = carve_scale(c);
  b.w_scale_inv = carve_scale(c);
  b.w = carve_codes(c, n, k, OCTAVO_E4M3FN);
  b.x = carve_codes(c, m, k, OCTAVO_E4M3FN);
  b.kernel = carve(c, c->base == NULL ? (int64_t)gemm_bytes(s, c, m, n, k) : 0);
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
    /* Their sum and not their maximum, which would not be affine in M. */
    carve(c, (int64_t)(gemm_bytes(s, c, m, k, n) + gemm_bytes(s, c, n, k, m)));
  } else {
    b.kernel = carve(c, 0);
  }
  return b;
}

/* Sizes are affine over multiples of 256 rows, up to the alignment of the pieces. */
static octavo_extent extent_of(const octavo_session *s, int64_t n, int64_t k,
                               buffers (*lay_out)(const octavo_session *, carver *, int64_t,
                                                  int64_t, int64_t),
                               octavo_status *status) {
  carver one = {NULL, 0, OCTAVO_OK}, two = {NULL, 0, OCTAVO_OK};
  lay_out(s, &one, 256, n, k);
  lay_out(s, &two, 512, n, k);
  const uint64_t slope = (two.used - one.used) / 256;
  const octavo_extent e = {256, slope, one.used - slope * 256};
  if (*status == OCTAVO_OK) *status = one.status != OCTAVO_OK ? one.status : two.status;
  return e;
}

octavo_status reference_linear_plan(const octavo_session *s, uint32_t linear,
                                    octavo_linear_plan *out) {
  if (linear >= s->sealed_linears)
    return reference_refuse(s->desc.host, OCTAVO_INVALID, "linear_plan: expected a sealed linear");
  const octavo_parameter_desc *w = &s->parameters[s->linears[linear]].desc;
  octavo_linear_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.size = out->size;
  plan.kind = out->kind;
  plan.flags = OCTAVO_LINEAR_NEEDS_X;
  plan.gradient =
      (w->flags & OCTAVO_PARAMETER_FROZEN) ? OCTAVO_GRADIENT_NONE : OCTAVO_GRADIENT_TENSOR;
  plan.saved.row_multiple = 1; /* nothing is saved: backward quantizes x again, to the same codes */
  octavo_status status = OCTAVO_OK;
  plan.forward_workspace = extent_of(s, w->rows, w->cols, forward_buffers, &status);
  plan.backward_workspace = extent_of(s, w->rows, w->cols, backward_buffers, &status);
  if (status != OCTAVO_OK) return status; /* reported by the kernels */
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

/* Whether a call's x or dy is there, with a number of rows that sizes can be computed from. */
static int has_rows(const octavo_tensor *t) {
  return t != NULL && t->rows >= 0 && t->rows <= REFERENCE_MOST;
}

/* One matrix of a call, or null. */
static octavo_status check_matrix(const octavo_session *s, const octavo_tensor *t, int64_t rows,
                                  int64_t cols) {
  if (t == NULL) return OCTAVO_OK;
  if (!reference_is_plain(t->dtype) || t->reserved != 0)
    return reference_refuse(s->desc.host, OCTAVO_UNSUPPORTED,
                            "a call of a linear: expected matrices in f32, bf16 or f16");
  if (t->rows != rows || t->cols != cols || (t->data != NULL && t->stride < cols))
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "a call of a linear: expected x and dx [M, K], y and dy [M, N], bias "
                            "and db [1, N] and dw [N, K] of the weight [N, K]");
  return OCTAVO_OK;
}

octavo_status reference_linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  if (!REFERENCE_IS(c, octavo_forward_call, workspace, OCTAVO_KIND_FORWARD_CALL))
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "linear_forward: expected an octavo_forward_call, its size and kind");
  if (c->linear >= s->sealed_linears)
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "linear_forward: expected a sealed linear");
  if (!has_rows(c->x) || c->y == NULL || c->slots == NULL)
    return reference_refuse(
        s->desc.host, OCTAVO_INVALID,
        "linear_forward: expected x [M, K] and y [M, N] with M from 0 to 2^40, and slots");
  const octavo_tensor w = weight_of(s, c->linear, c->slots);
  octavo_status status = check_matrix(s, c->x, c->x->rows, w.cols);
  if (status == OCTAVO_OK) status = check_matrix(s, c->y, c->x->rows, w.rows);
  if (status == OCTAVO_OK) status = check_matrix(s, c->bias, 1, w.rows);
  if (status != OCTAVO_OK) return status;
  carver pieces = {c->workspace, 0, OCTAVO_OK};
  buffers b = forward_buffers(s, &pieces, c->x->rows, w.rows, w.cols);
  float *nonfinite = c->slots[LINEAR_NONFINITE];
  status = quantize(s, c->x, &b.x, NULL, &b.x_scale_inv, nonfinite, c->stream);
  if (status == OCTAVO_OK)
    status = quantize(s, &w, &b.w, NULL, &b.w_scale_inv, nonfinite, c->stream);
  if (status != OCTAVO_OK) return status;
  octavo_gemm fprop =
      gemm_of(&b.x, &b.x_scale_inv, &b.w, &b.w_scale_inv, c->y, c->stream, b.kernel);
  fprop.bias = c->bias;
  return s->desc.kernels->gemm(s->desc.kernels_ctx, &fprop);
}

/* db: column sums of dy before it is quantized; through f32, since db may have another dtype. */
static octavo_status bias_gradient(const octavo_session *s, const octavo_backward_call *c,
                                   buffers *b, uint32_t accumulate) {
  octavo_sum sum = {sizeof sum, OCTAVO_KIND_SUM, c->stream, c->dy, NULL, b->column_sums.data, 0, 0,
                    NULL};
  octavo_dequantize add = {
      sizeof add, OCTAVO_KIND_DEQUANTIZE, c->stream, &b->column_sums, NULL, c->db, accumulate, 0};
  const octavo_status status = s->desc.kernels->sum_rows(s->desc.kernels_ctx, &sum);
  return status != OCTAVO_OK ? status : s->desc.kernels->dequantize(s->desc.kernels_ctx, &add);
}

octavo_status reference_linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (!REFERENCE_IS(c, octavo_backward_call, workspace, OCTAVO_KIND_BACKWARD_CALL))
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "linear_backward: expected an octavo_backward_call, its size and kind");
  if (c->linear >= s->sealed_linears)
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "linear_backward: expected a sealed linear");
  if (!has_rows(c->dy) || c->slots == NULL)
    return reference_refuse(s->desc.host, OCTAVO_INVALID,
                            "linear_backward: expected dy [M, N] with M from 0 to 2^40, and slots");
  const octavo_tensor w = weight_of(s, c->linear, c->slots);
  const int frozen =
      (s->parameters[s->linears[c->linear]].desc.flags & OCTAVO_PARAMETER_FROZEN) != 0;
  const int weight_wanted = c->dw != NULL && !frozen && !(c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  octavo_status status = check_matrix(s, c->dy, c->dy->rows, w.rows);
  if (status == OCTAVO_OK && c->dy->rows > 0) status = check_matrix(s, c->x, c->dy->rows, w.cols);
  if (status == OCTAVO_OK) status = check_matrix(s, c->dx, c->dy->rows, w.cols);
  if (status == OCTAVO_OK && weight_wanted) status = check_matrix(s, c->dw, w.rows, w.cols);
  if (status == OCTAVO_OK) status = check_matrix(s, c->db, 1, w.rows);
  if (status != OCTAVO_OK) return status;
  const uint32_t accumulate = (c->flags & OCTAVO_BACKWARD_OVERWRITE) ? 0 : 1;
  carver pieces = {c->workspace, 0, OCTAVO_OK};
  buffers b = backward_buffers(s, &pieces, c->dy->rows, w.rows, w.cols);
  status = quantize(s, c->dy, &b.dy, weight_wanted ? &b.dy_t : NULL, &b.dy_scale_inv,
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
