// The forward pass: which scale and which form x gets, then fprop on codes or on plain operands.
#include "linear.h"

#include "cast.h"
#include "plugins/common/product.h"

namespace octavo::te {
namespace {

bool is_evaluation(const octavo_forward_call &c) {
  return (c.flags & OCTAVO_FORWARD_EVALUATION) != 0;
}

// Whether fprop of this call runs on the host's own operands.
bool is_plain(const octavo_session &s, const octavo_forward_call &c) {
  return s.recipe.fprop == Operands::kPlain || (is_evaluation(c) && !s.recipe.evaluates_in_fp8);
}

octavo_status plain_product(const octavo_session &s, const octavo_forward_call &c,
                            const ForwardOperands &o) {
  const Parameter &weight = s.weight_of(c.linear);
  const octavo_tensor w{at(c.slots, s.linears[c.linear].weight_places.native),
                        weight.rows,
                        weight.cols,
                        weight.cols,
                        weight.dtype,
                        0};
  return plugin::multiply(
      s.device, c.stream,
      {.a = *c.x, .b = w, .d = c.y, .bias = c.bias, .workspace = o.pieces.kernel});
}

}  // namespace

bool can_fuse(const octavo_session &s, uint32_t linear) {
  return s.recipe.wgrad != Operands::kPlain || s.weight_of(linear).is_frozen();
}

octavo_status prepare_forward(const octavo_session &s, const octavo_forward_call &c,
                              ForwardOperands *out) {
  if (c.linear >= s.sealed_linears)
    return refuse(s, OCTAVO_INVALID, "linear_forward: expected a sealed linear");
  if (!plugin::has_rows(c.x) || c.y == nullptr)
    return refuse(
        s, OCTAVO_INVALID,
        "linear_forward: expected x [M, K] and y [M, N] with M from 0 to 2^40, found null "
        "or another M");
  const Linear &linear = s.linears[c.linear];
  ForwardOperands &o = *out;
  o.shape = shape_of(s, c.linear, c.x->rows);
  if (c.x->cols != o.shape.k || c.y->cols != o.shape.n || c.y->rows != o.shape.m)
    return refuse(s, OCTAVO_INVALID,
                  "linear_forward: expected x [M, K] and y [M, N] with the K and N of the weight "
                  "[N, K]");
  if (is_evaluation(c) && c.saved != nullptr)
    return refuse(s, OCTAVO_INVALID,
                  "linear_forward: expected saved null with OCTAVO_FORWARD_EVALUATION, found an "
                  "address; drop the flag where a backward follows");
  Carver carver(c.workspace);
  o.pieces = forward_pieces(s, o.shape, carver);
  const Keeps kept = c.saved != nullptr ? keeps(s, c.linear) : Keeps::kNothing;
  if (kept != Keeps::kNothing) o.saved = saved_of(s, c.linear, o.shape, c.saved);
  o.x = kept == Keeps::kRows ? o.saved.codes : o.pieces.x;
  o.x_scale_inv = kept == Keeps::kRows ? o.saved.scale_inv : o.pieces.x_scale_inv;
  Cast cast;
  cast.in = c.x;
  cast.workspace = o.pieces.kernel;
  if (kept == Keeps::kColumns) {
    o.x_t = o.saved.codes;
    o.x_t_scale_inv = o.saved.scale_inv;
    // Per tensor, rows and columns have one scale_inv, which must outlive the call.
    if (!s.recipe.blocks()) o.x_scale_inv = o.x_t_scale_inv;
    cast.columns = {&o.x_t, &o.x_t_scale_inv};
  }
  const bool wants = wants_statistics(c.slots, linear.x);
  const bool observes = kept != Keeps::kNothing && wants;
  if (!is_plain(s, c) || observes) cast.rows = {&o.x, &o.x_scale_inv};
  o.reads_x = is_plain(s, c) || wants;
  o.casts = cast.rows.codes != nullptr || cast.columns.codes != nullptr;
  o.cast = cast_call(s, c.stream, c.slots, linear.x, cast);
  return OCTAVO_OK;
}

octavo_status cast_input(const octavo_session &s, const octavo_forward_call &c,
                         const ForwardOperands &o) {
  if (!o.casts) return OCTAVO_OK;
  octavo_status status = s.device.kernels().quantize(s.device.ctx(), &o.cast);
  if (status != OCTAVO_OK || o.cast.out == nullptr) return status;
  return record_statistics(s, c.stream, c.slots, s.linears[c.linear].x, *c.x,
                           {o.cast.out, &o.x_scale_inv}, o.pieces.kernel);
}

octavo_status forward_product(const octavo_session &s, const octavo_forward_call &c,
                              ForwardOperands &o) {
  octavo_status status = OCTAVO_OK;
  if (o.saved.rest_bytes > 0)
    status = plugin::clear(s.device, c.stream, o.saved.rest, o.saved.rest_bytes);
  if (status != OCTAVO_OK) return status;
  if (is_plain(s, c)) return plain_product(s, c, o);
  const Cache &cache = s.linears[c.linear].weight_places.rows;
  octavo_tensor x = o.x;
  x.rows = o.shape.mp;  // `saved` may hold more
  const octavo_tensor w{
      at(c.slots, cache.codes), o.shape.np, o.shape.kp, o.shape.kp, OCTAVO_E4M3FN, 0};
  const octavo_scale w_scale_inv =
      scale_of(s.recipe.weight_granularity, o.shape.kp, at(c.slots, cache.scale_inv));
  return plugin::multiply(s.device, c.stream,
                          {.a = x,
                           .a_scale_inv = &o.x_scale_inv,
                           .b = w,
                           .b_scale_inv = &w_scale_inv,
                           .d = c.y,
                           .padded = &o.pieces.y,
                           .bias = c.bias,
                           .padded_bias = &o.pieces.bias,
                           .fast_accumulation = !s.recipe.blocks(),
                           .layout = octavo_session::fprop_layout(s.weight_of(c.linear)),
                           .workspace = o.pieces.kernel});
}

octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c) {
  ForwardOperands operands;
  octavo_status status = prepare_forward(*s, *c, &operands);
  if (status == OCTAVO_OK) status = cast_input(*s, *c, operands);
  if (status == OCTAVO_OK) status = forward_product(*s, *c, operands);
  return status;
}

}  // namespace octavo::te
