// quantize_weight: the codes of a weight that its linears' products read.
#include "cast.h"

namespace octavo::te {
namespace {

// The cache of fprop's codes: [np, kp], or whole panels of packed rows.
octavo_status pack_rows(const octavo_session &s, const octavo_weight_call &c, const Parameter &p,
                        const octavo_tensor &rows) {
  octavo_tensor cache = rows;
  cache.data = at(c.slots, p.places.rows.codes);
  cache.rows = s.device.packed(rows.rows);
  auto pack = make_call<octavo_pack>(OCTAVO_KIND_PACK, c.stream);
  pack.in = &rows;
  pack.out = &cache;
  return s.device.kernels().pack(s.device.ctx(), &pack);
}

}  // namespace

octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters)
    return refuse(*s, OCTAVO_INVALID, "quantize_weight: expected a sealed parameter");
  const Parameter &p = s->parameters[c->parameter];
  if (!p.is_linear_weight() || !s->recipe.casts_weight()) return OCTAVO_OK;
  const int64_t n = s->device.aligned(p.rows);
  const int64_t k = s->device.aligned(p.cols);
  const uint32_t granularity = s->recipe.weight_granularity;
  const octavo_tensor w{at(c->slots, p.places.native), p.rows, p.cols, p.cols, p.dtype, 0};
  Carver carver(c->workspace);
  WeightPieces pieces = weight_pieces(*s, p, carver);
  octavo_tensor rows = pieces.rows;
  octavo_scale rows_scale_inv = pieces.rows_scale_inv;
  if (s->recipe.reads_weight_rows()) {
    if (!p.is_packed) rows.data = at(c->slots, p.places.rows.codes);
    rows_scale_inv = scale_of(granularity, k, at(c->slots, p.places.rows.scale_inv));
  }
  octavo_tensor columns{at(c->slots, p.places.columns.codes), k, n, n, OCTAVO_E4M3FN, 0};
  const octavo_scale columns_scale_inv =
      scale_of(granularity, n, at(c->slots, p.places.columns.scale_inv));
  Cast cast;
  cast.in = &w;
  cast.workspace = pieces.kernel;
  if (s->recipe.reads_weight_columns()) cast.columns = {&columns, &columns_scale_inv};
  // Statistics are taken of codes that lie as the weight does.
  if (s->recipe.reads_weight_rows() || wants_statistics(c->slots, p.observed)) {
    if (!s->recipe.blocks() && s->recipe.reads_weight_columns()) rows_scale_inv = columns_scale_inv;
    cast.rows = {&rows, &rows_scale_inv};
  }
  const octavo_quantize q = cast_call(*s, c->stream, c->slots, p.observed, cast);
  octavo_status status = s->device.kernels().quantize(s->device.ctx(), &q);
  if (status == OCTAVO_OK && p.is_packed) status = pack_rows(*s, *c, p, rows);
  if (status != OCTAVO_OK) return status;
  return record_statistics(*s, c->stream, c->slots, p.observed, w, cast.rows, pieces.kernel);
}

}  // namespace octavo::te
