// fprop, dgrad and wgrad on quantized operands.
//
// A number that a cast reads is a scale; a number that lies beside codes is their scale_inv, and it
// is never computed again from a scale, since end_step may run between the cast and the use.
#include "layout.h"
#include "plugins/common/product.h"

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
  return s.device.kernels().quantize(s.device.ctx(), &q);
}

float *address(void *const *slots, uint32_t position) {
  return static_cast<float *>(slots[position]);
}

octavo_scale weight_scale_inv(void *const *slots, uint32_t position) {
  return {slots[position], 0, OCTAVO_F32, OCTAVO_PER_TENSOR};
}

}  // namespace

octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return refuse(*s, OCTAVO_INVALID, "quantize_weight: expected a sealed parameter");
  const Parameter &p = s->parameters[c->parameter];
  if (!p.is_linear_weight()) return OCTAVO_OK;
  const int64_t n = s->device.aligned(p.rows);
  const int64_t k = s->device.aligned(p.cols);
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
  if (c->linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "linear_forward: expected a sealed linear");
  const Shape shape = shape_of(*s, c->linear, c->x->rows);
  if (c->x->cols != shape.k || c->y->cols != shape.n || c->y->rows != shape.m)
    return refuse(*s, OCTAVO_INVALID,
                  "linear_forward: expected x [M, K] and y [M, N] with the K and N of the weight "
                  "[N, K]");
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
  return plugin::multiply(s->device, c->stream,
                          {.a = pieces.x,
                           .a_scale_inv = &x_scale_inv,
                           .b = w,
                           .b_scale_inv = &w_scale_inv,
                           .d = c->y,
                           .padded = &pieces.y,
                           .bias = c->bias,
                           .padded_bias = &pieces.bias,
                           .fast_accumulation = true,
                           .workspace = pieces.kernel});
}

octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (c->linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "linear_backward: expected a sealed linear");
  const Shape shape = shape_of(*s, c->linear, c->dy->rows);
  if (c->dy->cols != shape.n ||
      (c->dx != nullptr && (c->dx->cols != shape.k || c->dx->rows != shape.m)))
    return refuse(
        *s, OCTAVO_INVALID,
        "linear_backward: expected dy [M, N] and dx [M, K] with the N and K of the weight "
        "[N, K]");
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
    status = plugin::multiply(s->device, c->stream,
                              {.a = pieces.dy,
                               .a_scale_inv = &pieces.dy_scale_inv,
                               .b = w_t,
                               .b_scale_inv = &w_scale_inv,
                               .d = c->dx,
                               .padded = &pieces.dx,
                               .workspace = pieces.kernel});
  }
  if (status == OCTAVO_OK && wgrad) {
    // `saved` is only read: the cast-away const is the tensor struct's, which serves both ways.
    const Saved saved = saved_of(shape, const_cast<void *>(c->saved));
    octavo_tensor x_t = saved.x_t;
    x_t.cols = shape.mp;
    status = plugin::multiply(s->device, c->stream,
                              {.a = pieces.dy_t,
                               .a_scale_inv = &pieces.dy_scale_inv,
                               .b = x_t,
                               .b_scale_inv = &saved.x_scale_inv,
                               .d = c->dw,
                               .padded = &pieces.dw,
                               .accumulate = accumulate,
                               .workspace = pieces.kernel});
  }
  if (status == OCTAVO_OK && c->db != nullptr)
    status =
        plugin::bias_gradient(s->device, c->stream, *c->dy, pieces.column_sums, c->db, accumulate);
  return status;
}

}  // namespace octavo::te
