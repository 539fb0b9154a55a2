// fprop, dgrad and wgrad on quantized operands, with the weight gradient kept in a slot.
//
// x and dy are cast with delayed scales and a warm-up that the kernels decide on the device;
// weights and weight gradients with the scale of the tensor itself (a window of 1).
#include "linear.h"

#include "plugins/common/product.h"

namespace octavo::msamp {
namespace {

// The cast of x or dy.
struct OperandCast {
  const octavo_tensor *in;
  octavo_tensor *out;
  octavo_tensor *out_t;
  const octavo_scale *scale_inv;
  const Delayed *delayed;
  float *nonfinite;
  float format_max;
  void *workspace;
};

octavo_status cast_operand(const octavo_session &s, void *stream, void *const *slots,
                           const OperandCast &c) {
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, stream);
  q.in = c.in;
  q.out = c.out;
  q.out_t = c.out_t;
  q.out_scale_inv = c.scale_inv;
  q.scale = float_at(slots, c.delayed->scale);
  q.counter = float_at(slots, c.delayed->counter);
  q.window = static_cast<float>(s.recipe.amax_history_len);
  q.amax = float_at(slots, c.delayed->amax);
  q.nonfinite = c.nonfinite;
  q.format_max = c.format_max;
  q.rule = s.recipe.rule();
  q.workspace = c.workspace;
  return s.device.kernels().quantize(s.device.ctx(), &q);
}

// A cast tells what is not finite; an f32 gradient is not cast, so it is looked at.
octavo_status report_nonfinite(const octavo_session &s, const octavo_backward_call &c,
                               const Linear &l, const octavo_tensor &gradient,
                               const BackwardPieces &pieces) {
  float *nonfinite = float_at(c.slots, l.nonfinite);
  if (nonfinite == nullptr) return OCTAVO_OK;
  // Its largest value is not asked for, but the kernel adds it to something.
  auto *amax = static_cast<float *>(pieces.dy_scale_inv.data);
  auto look = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX, c.stream);
  look.in = &gradient;
  look.amax = amax;
  look.nonfinite = nonfinite;
  return s.device.kernels().compute_amax(s.device.ctx(), &look);
}

// dw += dy^T x into the gradient slot. In E4M3 the old codes are widened, the product is added in
// fp32, and the sum is cast again with its own scale.
octavo_status weight_gradient(const octavo_session &s, const octavo_backward_call &c,
                              const Linear &l, const Shape &shape, BackwardPieces &pieces) {
  const bool accumulate = !(c.flags & OCTAVO_BACKWARD_OVERWRITE);
  // `saved` is only read: the cast-away const is the tensor struct's, which serves both ways.
  const Saved saved = plugin::saved_of(shape, const_cast<void *>(c.saved));
  octavo_tensor x_t = saved.x_t;
  x_t.cols = shape.mp;
  octavo_tensor gradient = tensor_at(c.slots, l.gradient, shape.n, shape.k);
  plugin::Product product{.a = pieces.dy_t,
                          .a_scale_inv = &pieces.dy_scale_inv,
                          .b = x_t,
                          .b_scale_inv = &saved.x_scale_inv,
                          .d = &gradient,
                          .padded = &pieces.dw,
                          .accumulate = accumulate,
                          .workspace = pieces.kernel};
  if (gradient.dtype == OCTAVO_F32) {
    const octavo_status product_status = plugin::multiply(s.device, c.stream, product);
    return product_status != OCTAVO_OK ? product_status
                                       : report_nonfinite(s, c, l, gradient, pieces);
  }

  octavo_tensor sum = pieces.dw;
  sum.rows = shape.n;
  sum.cols = shape.k;
  const octavo_scale scale_inv = scale_at(c.slots, l.gradient.scale_inv);
  octavo_status status = OCTAVO_OK;
  if (accumulate) {
    const auto bytes = static_cast<uint64_t>(shape.np * shape.kp) * sizeof(float);
    if (shape.np != shape.n || shape.kp != shape.k)
      status = plugin::clear(s.device, c.stream, pieces.dw.data, bytes);
    if (status == OCTAVO_OK)
      status = plugin::dequantize(s.device, c.stream, gradient, &scale_inv, &sum, false);
  }
  product.d = &pieces.dw;
  if (status == OCTAVO_OK) status = plugin::multiply(s.device, c.stream, product);
  if (status != OCTAVO_OK) return status;
  TensorCast cast;
  cast.in = sum;
  cast.out = &gradient;
  cast.out_scale_inv = scale_inv;
  cast.nonfinite = float_at(c.slots, l.nonfinite);
  cast.workspace = pieces.kernel;
  return cast_by_rule(s, c.stream, cast);
}

}  // namespace

octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  if (c->linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "linear_forward: expected a sealed linear");
  if (!plugin::has_rows(c->x) || c->y == nullptr)
    return refuse(
        *s, OCTAVO_INVALID,
        "linear_forward: expected x [M, K] and y [M, N] with M from 0 to 2^40, found null "
        "or another M");
  const Linear &l = s->linears[c->linear];
  const Shape shape = shape_of(*s, c->linear, c->x->rows);
  if (c->x->cols != shape.k || c->y->cols != shape.n || c->y->rows != shape.m)
    return refuse(*s, OCTAVO_INVALID,
                  "linear_forward: expected x [M, K] and y [M, N] with the K and "
                  "N of the weight [N, K]");
  Carver carver(c->workspace);
  ForwardPieces pieces = forward_pieces(*s, c->linear, shape, carver);
  Saved saved{};
  if (c->saved != nullptr) saved = plugin::saved_of(shape, c->saved);
  const octavo_scale &x_scale_inv = c->saved != nullptr ? saved.x_scale_inv : pieces.x_scale_inv;
  octavo_status status = cast_operand(*s, c->stream, c->slots,
                                      {c->x, &pieces.x, c->saved != nullptr ? &saved.x_t : nullptr,
                                       &x_scale_inv, &l.x, nullptr, kE4m3Max, pieces.kernel});
  WeightCodes w{};
  if (status == OCTAVO_OK) status = weight_rows(*s, c->stream, c->slots, l, shape, pieces, &w);
  if (status != OCTAVO_OK) return status;
  return plugin::multiply(s->device, c->stream,
                          {.a = pieces.x,
                           .a_scale_inv = &x_scale_inv,
                           .b = w.codes,
                           .b_scale_inv = &w.scale_inv,
                           .d = c->y,
                           .padded = &pieces.y,
                           .bias = c->bias,
                           .padded_bias = &pieces.bias,
                           .bias_after = s->recipe.parity,
                           .fast_accumulation = true,
                           .workspace = pieces.kernel});
}

octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (c->linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "linear_backward: expected a sealed linear");
  if (!plugin::has_rows(c->dy))
    return refuse(
        *s, OCTAVO_INVALID,
        "linear_backward: expected dy [M, N] with M from 0 to 2^40, found null or another "
        "M");
  const Linear &l = s->linears[c->linear];
  if (l.gradient.exists() && c->dw != nullptr)
    return refuse(*s, OCTAVO_INVALID,
                  "linear_backward: expected dw null, since the plan's gradient "
                  "is OCTAVO_GRADIENT_SLOT, found a tensor");
  const Shape shape = shape_of(*s, c->linear, c->dy->rows);
  if (c->dy->cols != shape.n ||
      (c->dx != nullptr && (c->dx->cols != shape.k || c->dx->rows != shape.m)))
    return refuse(*s, OCTAVO_INVALID,
                  "linear_backward: expected dy [M, N] and dx [M, K] with the N "
                  "and K of the weight [N, K]");
  const bool wgrad = l.gradient.exists() && !(c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT);
  Carver carver(c->workspace);
  BackwardPieces pieces = backward_pieces(*s, c->linear, shape, carver);
  octavo_status status =
      cast_operand(*s, c->stream, c->slots,
                   {c->dy, &pieces.dy, wgrad ? &pieces.dy_t : nullptr, &pieces.dy_scale_inv, &l.dy,
                    float_at(c->slots, l.nonfinite), kE5m2Max, pieces.kernel});
  if (status == OCTAVO_OK && c->dx != nullptr) {
    WeightCodes w_t{};
    status = weight_columns(*s, c->stream, c->slots, l, shape, pieces, &w_t);
    if (status == OCTAVO_OK)
      status = plugin::multiply(s->device, c->stream,
                                {.a = pieces.dy,
                                 .a_scale_inv = &pieces.dy_scale_inv,
                                 .b = w_t.codes,
                                 .b_scale_inv = &w_t.scale_inv,
                                 .d = c->dx,
                                 .padded = &pieces.dx,
                                 .workspace = pieces.kernel});
  }
  if (status == OCTAVO_OK && wgrad) status = weight_gradient(*s, *c, l, shape, pieces);
  if (status == OCTAVO_OK && c->db != nullptr)
    status = plugin::bias_gradient(s->device, c->stream, *c->dy, pieces.column_sums, c->db,
                                   !(c->flags & OCTAVO_BACKWARD_OVERWRITE));
  return status;
}

}  // namespace octavo::msamp
