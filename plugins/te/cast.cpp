// Casts by the recipe: which scale, which rule, which amax.
#include "cast.h"

namespace octavo::te {

octavo_quantize cast_call(const octavo_session &s, void *stream, void *const *slots,
                          const Observed &observed, const Cast &cast) {
  auto q = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE, stream);
  q.in = cast.in;
  q.out = cast.rows.codes;
  q.out_t = cast.columns.codes;
  if (s.recipe.blocks()) {
    q.out_scale_inv = cast.rows.codes != nullptr ? cast.rows.scale_inv : nullptr;
    q.out_t_scale_inv = cast.columns.codes != nullptr ? cast.columns.scale_inv : nullptr;
  } else {
    q.out_scale_inv = cast.columns.codes != nullptr ? cast.columns.scale_inv : cast.rows.scale_inv;
  }
  q.scale = float_at(slots, observed.scale);
  q.amax = float_at(slots, observed.amax);
  q.nonfinite = cast.nonfinite;
  q.format_max = cast.dtype == OCTAVO_E5M2 ? kE5m2Max : kE4m3Max;
  q.rule = s.recipe.delayed() ? uint32_t{OCTAVO_RULE_GIVEN} : s.recipe.rule;
  q.eps = s.recipe.eps;
  q.workspace = cast.workspace;
  return q;
}

bool wants_statistics(void *const *slots, const Observed &observed) {
  for (const Position position : observed.statistics)
    if (at(slots, position) != nullptr) return true;
  return false;
}

octavo_status record_statistics(const octavo_session &s, void *stream, void *const *slots,
                                const Observed &observed, const octavo_tensor &in,
                                const Target &codes, void *workspace) {
  if (!wants_statistics(slots, observed)) return OCTAVO_OK;
  auto c = make_call<octavo_quantize_stats>(OCTAVO_KIND_QUANTIZE_STATS, stream);
  c.in = &in;
  c.codes = codes.codes;
  c.scale_inv = codes.scale_inv;
  c.saturated = float_at(slots, observed.statistics[kSaturated]);
  c.underflow = float_at(slots, observed.statistics[kUnderflow]);
  c.signal = float_at(slots, observed.statistics[kSignal]);
  c.noise = float_at(slots, observed.statistics[kNoise]);
  c.workspace = workspace;
  return s.device.kernels().quantize_stats(s.device.ctx(), &c);
}

}  // namespace octavo::te
