// The backward pass: dgrad and wgrad, each on codes, on plain operands or on dequantized codes.
#include "cast.h"
#include "plugins/common/product.h"

namespace octavo::te {
namespace {

class Backward {
 public:
  Backward(const octavo_session &s, const octavo_backward_call &c)
      : s_(s),
        c_(c),
        linear_(s.linears[c.linear]),
        shape_(shape_of(s, c.linear, c.dy->rows)),
        wants_dw_(c.dw != nullptr && !s.weight_of(c.linear).is_frozen() &&
                  !(c.flags & OCTAVO_BACKWARD_SKIP_WEIGHT)),
        accumulates_(!(c.flags & OCTAVO_BACKWARD_OVERWRITE)) {}

  octavo_status run() {
    if (const octavo_status status = check(); status != OCTAVO_OK) return status;
    Carver carver(c_.workspace);
    pieces_ = backward_pieces(s_, c_.linear, shape_, carver);
    octavo_status status = cast_gradient();
    if (status == OCTAVO_OK && c_.dx != nullptr) status = dgrad();
    if (status == OCTAVO_OK && wants_dw_) status = wgrad();
    if (status == OCTAVO_OK && c_.db != nullptr)
      status = plugin::bias_gradient(s_.device, c_.stream, *c_.dy, pieces_.column_sums, c_.db,
                                     accumulates_);
    return status;
  }

 private:
  octavo_status check() const {
    if (c_.dy->cols != shape_.n ||
        (c_.dx != nullptr && (c_.dx->cols != shape_.k || c_.dx->rows != shape_.m)))
      return refuse(
          s_, OCTAVO_INVALID,
          "linear_backward: expected dy [M, N] and dx [M, K] with the N and K of the weight "
          "[N, K]");
    if (!wants_dw_ || shape_.m == 0) return OCTAVO_OK;
    if (s_.recipe.wgrad != Operands::kPlain && c_.saved == nullptr)
      return refuse(s_, OCTAVO_INVALID,
                    "linear_backward: expected saved as linear_forward wrote it, found null");
    if (s_.recipe.wgrad == Operands::kPlain &&
        (c_.x == nullptr || c_.x->rows != shape_.m || c_.x->cols != shape_.k))
      return refuse(s_, OCTAVO_INVALID,
                    "linear_backward: expected x [M, K] of the forward call, since the plan says "
                    "OCTAVO_LINEAR_NEEDS_X");
    return OCTAVO_OK;
  }

  // dy to codes, where a product reads them. Else only a look at it, so that its amax and the flag
  // do not depend on which gradients are wanted.
  octavo_status cast_gradient() {
    Cast cast;
    cast.in = c_.dy;
    cast.dtype = s_.recipe.gradient_dtype;
    cast.nonfinite = float_at(c_.slots, linear_.nonfinite);
    cast.workspace = pieces_.kernel;
    if (wants_dw_ && s_.recipe.wgrad == Operands::kFp8)
      cast.columns = {&pieces_.dy_t, &pieces_.dy_t_scale_inv};
    const bool observes = cast.columns.codes != nullptr && wants_statistics(c_.slots, linear_.dy);
    if ((c_.dx != nullptr && s_.recipe.dgrad == Operands::kFp8) || observes)
      cast.rows = {&pieces_.dy, &pieces_.dy_scale_inv};
    if (cast.rows.codes == nullptr && cast.columns.codes == nullptr) return look(cast.nonfinite);
    const octavo_quantize q = cast_call(s_, c_.stream, c_.slots, linear_.dy, cast);
    const octavo_status status = s_.device.kernels().quantize(s_.device.ctx(), &q);
    if (status != OCTAVO_OK || cast.rows.codes == nullptr) return status;
    return record_statistics(s_, c_.stream, c_.slots, linear_.dy, *c_.dy, cast.rows,
                             pieces_.kernel);
  }

  octavo_status look(float *nonfinite) {
    float *amax = float_at(c_.slots, linear_.dy.amax);
    if (nonfinite == nullptr && amax == nullptr) return OCTAVO_OK;
    if (amax == nullptr) {
      amax = pieces_.amax;
      const octavo_status status = plugin::clear(s_.device, c_.stream, amax, sizeof(float));
      if (status != OCTAVO_OK) return status;
    }
    auto look = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX, c_.stream);
    look.in = c_.dy;
    look.amax = amax;
    look.nonfinite = nonfinite;
    return s_.device.kernels().compute_amax(s_.device.ctx(), &look);
  }

  // dx[M, K] = dy[M, N] w[N, K]
  octavo_status dgrad() {
    const WeightPlaces &places = linear_.weight_places;
    plugin::Product p;
    p.d = c_.dx;
    p.padded = &pieces_.dx;
    p.workspace = pieces_.kernel;
    if (s_.recipe.dgrad == Operands::kFp8) {
      const octavo_scale w_scale_inv =
          scale_of(s_.recipe.weight_granularity, shape_.np, at(c_.slots, places.columns.scale_inv));
      p.a = pieces_.dy;
      p.a_scale_inv = &pieces_.dy_scale_inv;
      p.b = {at(c_.slots, places.columns.codes), shape_.kp, shape_.np, shape_.np, OCTAVO_E4M3FN, 0};
      p.b_scale_inv = &w_scale_inv;
      return plugin::multiply(s_.device, c_.stream, p);
    }
    p.a = *c_.dy;
    p.layout = OCTAVO_GEMM_B_KN;
    const Parameter &weight = s_.weight_of(c_.linear);
    p.b = {at(c_.slots, places.native), shape_.n, shape_.k, shape_.k, weight.dtype, 0};
    if (s_.recipe.dgrad == Operands::kDequantized) {
      const octavo_scale scale_inv =
          scale_of(s_.recipe.weight_granularity, shape_.kp, at(c_.slots, places.rows.scale_inv));
      const octavo_tensor codes{
          at(c_.slots, places.rows.codes), shape_.n, shape_.k, shape_.kp, OCTAVO_E4M3FN, 0};
      const octavo_status status =
          plugin::dequantize(s_.device, c_.stream, codes, &scale_inv, &pieces_.w, false);
      if (status != OCTAVO_OK) return status;
      p.b = pieces_.w;
    }
    return plugin::multiply(s_.device, c_.stream, p);
  }

  // dw[N, K] = dy[M, N]^T x[M, K], or added to it
  octavo_status wgrad() {
    plugin::Product p;
    p.d = c_.dw;
    p.padded = &pieces_.dw;
    p.accumulate = accumulates_;
    p.workspace = pieces_.kernel;
    // `saved` is only read: the const that is cast away is the tensor struct's, which serves both.
    Saved saved{};
    if (c_.saved != nullptr && keeps(s_, c_.linear) != Keeps::kNothing)
      saved = saved_of(s_, c_.linear, shape_, const_cast<void *>(c_.saved));
    if (s_.recipe.wgrad == Operands::kFp8 && shape_.m > 0) {
      p.a = pieces_.dy_t;
      p.a_scale_inv = &pieces_.dy_t_scale_inv;
      p.b = saved.codes;
      p.b.cols = shape_.mp;
      p.b_scale_inv = &saved.scale_inv;
      return plugin::multiply(s_.device, c_.stream, p);
    }
    p.a = *c_.dy;
    p.layout = OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN;
    if (shape_.m == 0) {  // a sum of nothing, whatever x would have been
      p.b = {nullptr, 0, shape_.k, shape_.k, c_.dy->dtype, 0};
    } else if (s_.recipe.wgrad == Operands::kPlain) {
      p.b = *c_.x;
    } else {
      octavo_tensor codes = saved.codes;
      codes.rows = shape_.m;
      codes.cols = shape_.k;
      const octavo_status status =
          plugin::dequantize(s_.device, c_.stream, codes, &saved.scale_inv, &pieces_.x, false);
      if (status != OCTAVO_OK) return status;
      p.b = pieces_.x;
    }
    return plugin::multiply(s_.device, c_.stream, p);
  }

  const octavo_session &s_;
  const octavo_backward_call &c_;
  const Linear &linear_;
  const Shape shape_;
  const bool wants_dw_;
  const bool accumulates_;
  BackwardPieces pieces_{};
};

}  // namespace

octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (c->linear >= s->sealed_linears)
    return refuse(*s, OCTAVO_INVALID, "linear_backward: expected a sealed linear");
  if (!plugin::has_rows(c->dy))
    return refuse(
        *s, OCTAVO_INVALID,
        "linear_backward: expected dy [M, N] with M from 0 to 2^40, found null or another "
        "M");
  return Backward(*s, *c).run();
}

}  // namespace octavo::te
