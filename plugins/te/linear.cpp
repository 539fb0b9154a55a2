// fprop, dgrad and wgrad on quantized operands.
//
// A number that a cast reads is a scale; a number that lies beside codes is their scale_inv, and it
// is never computed again from a scale, since end_step may run between the cast and the use.
#include "layout.h"

namespace octavo::te {
namespace {

// One cast by the session's recipe: with `scale` the delayed one, without it the current rule.
struct Cast {
  const octavo_tensor *in;
  octavo_tensor *out;
  octavo_tensor *out_t;
  const octavo_scale *scale_inv;
  const float *scale;
  float *amax;
  float *nonfinite;
  uint32_t dtype;
  void *workspace;
};

octavo_status cast(const octavo_session &s, void *stream, const Cast &c) {
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, stream);
  q.in = c.in;
  q.out = c.out;
  q.out_t = c.out_t;
  q.out_scale_inv = c.scale_inv;
  q.scale = c.scale;
  q.amax = c.amax;
  q.nonfinite = c.nonfinite;
  q.format_max = c.dtype == OCTAVO_E5M2 ? kE5m2Max : kE4m3Max;
  q.rule = c.scale != nullptr ? OCTAVO_RULE_GIVEN : OCTAVO_RULE_QUOTIENT;
  q.workspace = c.workspace;
  return s.kernels().quantize(s.desc.kernels_ctx, &q);
}

struct Product {
  octavo_tensor a;
  const octavo_scale *a_scale_inv;
  octavo_tensor b;
  const octavo_scale *b_scale_inv;
  octavo_tensor *d;       // where the host wants it
  octavo_tensor *padded;  // f32 in the workspace; used when its shape is not d's
  const octavo_tensor *bias;
  octavo_tensor *padded_bias;
  bool accumulate;
  bool fast_accumulation;
  void *workspace;
};

octavo_status convert(const octavo_session &s, void *stream, const octavo_tensor &in,
                      octavo_tensor *out, bool accumulate) {
  auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE, stream);
  c.in = &in;
  c.out = out;
  c.accumulate = accumulate ? 1 : 0;
  return s.kernels().dequantize(s.desc.kernels_ctx, &c);
}

// The bias, widened to f32 and to the padded number of columns.
octavo_status pad_bias(const octavo_session &s, void *stream, const Product &p) {
  auto fill = make_call<octavo_copy>(OCTAVO_KIND_COPY, stream);
  fill.out = p.padded_bias->data;
  fill.bytes = static_cast<uint64_t>(p.padded_bias->cols) * sizeof(float);
  const octavo_status status = s.kernels().copy(s.desc.kernels_ctx, &fill);
  octavo_tensor front = *p.padded_bias;
  front.cols = p.bias->cols;
  return status != OCTAVO_OK ? status : convert(s, stream, *p.bias, &front, false);
}

// One GEMM. Where the kernels need aligned shapes it goes through an f32 piece of the workspace,
// and the part that is real is rounded once, to the host's dtype: the same bits as without padding.
octavo_status multiply(const octavo_session &s, void *stream, const Product &p) {
  const bool padded = p.a.rows != p.d->rows || p.b.rows != p.d->cols;
  auto g = make_call<octavo_gemm>(OCTAVO_KIND_GEMM, stream);
  g.a = &p.a;
  g.b = &p.b;
  g.a_scale_inv = p.a_scale_inv;
  g.b_scale_inv = p.b_scale_inv;
  g.d = padded ? p.padded : p.d;
  g.bias = padded && p.bias != nullptr ? p.padded_bias : p.bias;
  g.workspace = p.workspace;
  g.accumulate = p.accumulate && !padded ? 1 : 0;
  g.fast_accumulation = p.fast_accumulation ? 1 : 0;
  octavo_status status = OCTAVO_OK;
  if (padded && p.bias != nullptr) status = pad_bias(s, stream, p);
  if (status == OCTAVO_OK) status = s.kernels().gemm(s.desc.kernels_ctx, &g);
  if (status != OCTAVO_OK || !padded) return status;
  octavo_tensor real = *p.padded;
  real.rows = p.d->rows;
  real.cols = p.d->cols;
  return convert(s, stream, real, p.d, p.accumulate);
}

float *address(void *const *slots, uint32_t position) {
  return static_cast<float *>(slots[position]);
}

octavo_scale weight_scale_inv(void *const *slots, uint32_t position) {
  return {slots[position], 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
}

octavo_status bias_gradient(const octavo_session &s, const octavo_backward_call &c,
                            const BackwardPieces &pieces, bool accumulate) {
  auto sum = make_call<octavo_sum>(OCTAVO_KIND_SUM, c.stream);
  sum.in = c.dy;
  sum.out = pieces.column_sums.data;
  const octavo_status status = s.kernels().sum_rows(s.desc.kernels_ctx, &sum);
  if (status != OCTAVO_OK) return status;
  return convert(s, c.stream, pieces.column_sums, c.db, accumulate);
}

}  // namespace

octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters) return OCTAVO_INVALID;
  const Parameter &p = s->parameters[c->parameter];
  if (!p.is_linear_weight()) return OCTAVO_OK;
  const int64_t n = s->aligned(p.rows);
  const int64_t k = s->aligned(p.cols);
  const octavo_tensor w{c->slots[kParameterWeight], p.rows, p.cols, p.cols, p.dtype, 0};
  octavo_tensor codes{c->slots[kParameterCache], n, k, k, OCTAVO_E4M3FN, 0};
  octavo_tensor codes_t{c->slots[kParameterCacheT], k, n, n, OCTAVO_E4M3FN, 0};
  const octavo_scale scale_inv = weight_scale_inv(c->slots, kParameterScaleInv);
  return cast(*s, c->stream,
              {&w, &codes, &codes_t, &scale_inv,
               s->delayed() ? address(c->slots, kParameterScale) : nullptr,
               address(c->slots, kParameterAmax), nullptr, OCTAVO_E4M3FN, c->workspace});
}

octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  if (c->linear >= s->sealed_linears) return OCTAVO_INVALID;
  const Shape shape = shape_of(*s, c->linear, c->x->rows);
  Carver carver(c->workspace);
  ForwardPieces pieces = forward_pieces(*s, shape, carver);
  Saved saved{};
  if (c->saved != nullptr) saved = saved_of(shape, c->saved);
  const octavo_scale &x_scale_inv = c->saved != nullptr ? saved.x_scale_inv : pieces.x_scale_inv;
  const octavo_status status =
      cast(*s, c->stream,
           {c->x, &pieces.x, c->saved != nullptr ? &saved.x_t : nullptr, &x_scale_inv,
            s->delayed() ? address(c->slots, kLinearXScale) : nullptr,
            address(c->slots, kLinearXAmax), nullptr, OCTAVO_E4M3FN, pieces.kernel});
  if (status != OCTAVO_OK) return status;
  const octavo_tensor w{c->slots[kLinearCache], shape.np, shape.kp, shape.kp, OCTAVO_E4M3FN, 0};
  const octavo_scale w_scale_inv = weight_scale_inv(c->slots, kLinearScaleInv);
  return multiply(*s, c->stream,
                  {pieces.x, &x_scale_inv, w, &w_scale_inv, c->y, &pieces.y, c->bias, &pieces.bias,
                   false, true, pieces.kernel});
}

octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (c->linear >= s->sealed_linears) return OCTAVO_INVALID;
  const Shape shape = shape_of(*s, c->linear, c->dy->rows);
  const bool frozen = s->parameters[s->linears[c->linear].weight].is_frozen();
  const bool wgrad = c->dw != nullptr && !frozen && !(c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  const bool accumulate = !(c->flags & OCTAVO_BACKWARD_OVERWRITE);
  Carver carver(c->workspace);
  BackwardPieces pieces = backward_pieces(*s, shape, carver);
  octavo_status status = cast(
      *s, c->stream,
      {c->dy, &pieces.dy, wgrad ? &pieces.dy_t : nullptr, &pieces.dy_scale_inv,
       s->delayed() ? address(c->slots, kLinearDyScale) : nullptr, address(c->slots, kLinearDyAmax),
       address(c->slots, kLinearNonfinite), s->recipe.gradient_dtype, pieces.kernel});
  if (status == OCTAVO_OK && c->dx != nullptr) {
    const octavo_tensor w_t{c->slots[kLinearCacheT], shape.kp, shape.np, shape.np,
                            OCTAVO_E4M3FN,           0};
    const octavo_scale w_scale_inv = weight_scale_inv(c->slots, kLinearScaleInv);
    status = multiply(*s, c->stream,
                      {pieces.dy, &pieces.dy_scale_inv, w_t, &w_scale_inv, c->dx, &pieces.dx,
                       nullptr, nullptr, false, false, pieces.kernel});
  }
  if (status == OCTAVO_OK && wgrad) {
    // `saved` is only read: the cast-away const is the tensor struct's, which serves both ways.
    const Saved saved = saved_of(shape, const_cast<void *>(c->saved));
    octavo_tensor x_t = saved.x_t;
    x_t.cols = shape.mp;
    status = multiply(*s, c->stream,
                      {pieces.dy_t, &pieces.dy_scale_inv, x_t, &saved.x_scale_inv, c->dw,
                       &pieces.dw, nullptr, nullptr, accumulate, false, pieces.kernel});
  }
  if (status == OCTAVO_OK && c->db != nullptr) status = bias_gradient(*s, *c, pieces, accumulate);
  return status;
}

}  // namespace octavo::te
