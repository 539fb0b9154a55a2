// Codes of a weight for one GEMM: from the cache, from the slot itself, or cast now; and the casts
// whose scale is that of the tensor itself.
#include "linear.h"

namespace octavo::msamp {
namespace {

octavo_status cast_weight(const octavo_session &s, void *stream, void *const *slots,
                          const Linear &l, const Shape &shape, octavo_tensor *out,
                          octavo_tensor *out_t, const octavo_scale &scale_inv, void *workspace,
                          octavo_scale *used_scale_inv) {
  TensorCast c;
  c.in = tensor_at(slots, l.w, shape.n, shape.k);
  c.out = out;
  c.out_t = out_t;
  c.out_scale_inv = scale_inv;
  c.workspace = workspace;
  if (l.w.dtype == OCTAVO_E4M3FN) {
    *used_scale_inv = scale_at(slots, l.w.scale_inv);
    return move_codes(s, stream, c);
  }
  *used_scale_inv = scale_inv;
  c.in_scale_inv = float_at(slots, l.w.scale_inv);
  return cast_by_rule(s, stream, c);
}

octavo_scale cache_scale_inv(void *const *slots, const Linear &l) {
  const bool own = l.cache_scale_inv.position != OCTAVO_NONE;
  return scale_at(slots, own ? l.cache_scale_inv : l.w.scale_inv);
}

}  // namespace

octavo_status weight_rows(const octavo_session &s, void *stream, void *const *slots,
                          const Linear &l, const Shape &shape, ForwardPieces &pieces,
                          WeightCodes *out) {
  if (l.cache.position != OCTAVO_NONE) {
    out->codes = {at(slots, l.cache), shape.np, shape.kp, shape.kp, OCTAVO_E4M3FN, 0};
    out->scale_inv = cache_scale_inv(slots, l);
    return OCTAVO_OK;
  }
  if (pieces.w.codes.rows == 0) {
    out->codes = tensor_at(slots, l.w, shape.n, shape.k);
    out->scale_inv = scale_at(slots, l.w.scale_inv);
    return OCTAVO_OK;
  }
  out->codes = pieces.w.codes;
  return cast_weight(s, stream, slots, l, shape, &pieces.w.codes, nullptr, pieces.w.scale_inv,
                     pieces.kernel, &out->scale_inv);
}

octavo_status weight_columns(const octavo_session &s, void *stream, void *const *slots,
                             const Linear &l, const Shape &shape, BackwardPieces &pieces,
                             WeightCodes *out) {
  if (l.cache_t.position != OCTAVO_NONE) {
    out->codes = {at(slots, l.cache_t), shape.kp, shape.np, shape.np, OCTAVO_E4M3FN, 0};
    out->scale_inv = cache_scale_inv(slots, l);
    return OCTAVO_OK;
  }
  out->codes = pieces.w_t.codes;
  return cast_weight(s, stream, slots, l, shape, nullptr, &pieces.w_t.codes, pieces.w_t.scale_inv,
                     pieces.kernel, &out->scale_inv);
}

octavo_status cast_by_rule(const octavo_session &s, void *stream, const TensorCast &c) {
  const uint32_t dtype = c.out != nullptr ? c.out->dtype : c.out_t->dtype;
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, stream);
  q.in = &c.in;
  q.in_scale_inv = c.in_scale_inv;
  q.out = c.out;
  q.out_t = c.out_t;
  q.out_scale_inv = &c.out_scale_inv;
  q.nonfinite = c.nonfinite;
  q.format_max = dtype == OCTAVO_F16 ? kF16Max : dtype == OCTAVO_E5M2 ? kE5m2Max : kE4m3Max;
  q.rule = s.recipe.rule();
  q.flags = c.keep_positive ? OCTAVO_QUANTIZE_KEEP_POSITIVE : 0;
  q.workspace = c.workspace;
  return s.device.kernels().quantize(s.device.ctx(), &q);
}

octavo_status move_codes(const octavo_session &s, void *stream, const TensorCast &c) {
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, stream);
  q.in = &c.in;
  q.out = c.out;
  q.out_t = c.out_t;
  q.out_scale_inv = &c.out_scale_inv;
  q.rule = OCTAVO_RULE_GIVEN;
  q.workspace = c.workspace;
  return s.device.kernels().quantize(s.device.ctx(), &q);
}

octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return refuse(*s, OCTAVO_INVALID, "quantize_weight: expected a sealed parameter");
  const Parameter &p = s->parameters[c->parameter];
  if (!p.is_owned || !s->recipe.weight_cache) return OCTAVO_OK;
  const int64_t n = s->device.aligned(p.rows);
  const int64_t k = s->device.aligned(p.cols);
  octavo_tensor codes{at(c->slots, p.cache), n, k, k, OCTAVO_E4M3FN, 0};
  octavo_tensor codes_t{at(c->slots, p.cache_t), k, n, n, OCTAVO_E4M3FN, 0};
  Carver carver(c->workspace);
  TensorCast cast;
  cast.in = tensor_at(c->slots, p.weight, p.rows, p.cols);
  cast.out = codes.data != nullptr ? &codes : nullptr;
  cast.out_t = &codes_t;
  cast.out_scale_inv = carver.scale_inv();
  cast.workspace = carver.take(0);
  if (p.weight.dtype == OCTAVO_E4M3FN) return move_codes(*s, c->stream, cast);
  cast.in_scale_inv = float_at(c->slots, p.weight.scale_inv);
  cast.out_scale_inv = scale_at(c->slots, p.cache_scale_inv);
  return cast_by_rule(*s, c->stream, cast);
}

}  // namespace octavo::msamp
