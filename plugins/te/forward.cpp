// The casts of a weight and of x, and fprop.
#include "te.h"

namespace octavo::te {

using namespace plugin;

Cast Te::by_recipe(const Observation &seen) const {
  Cast how;
  how.amax = seen.amax;
  how.scale = seen.scale;
  how.rule = recipe_.delayed() && !recipe_.warms_up ? uint32_t{OCTAVO_RULE_GIVEN} : recipe_.rule;
  if (recipe_.warms_up) {
    how.counter = seen.counter;
    how.window = 1;
    how.margin = options().margin;
  }
  how.eps = recipe_.eps;
  return how;
}

// The codes of w that its products read.
void Te::cast_weight(Pass &p, const WeightCall &c) const {
  Codes w = c[cache_];
  if (!w.has_rows() && !w.has_columns()) return;
  const Observation seen = c[w_];
  const octavo_tensor cached = w.rows;
  // Statistics are taken of codes in the order of the weight, whatever the cache has.
  const bool packs = w.layout == Layout::kPacked;
  if (packs || (seen.statistics.wanted && !w.has_rows()))
    p.add_rows(w, c.n(), c.k(), recipe_.operand_dtype, recipe_.weight_granularity);
  p.cast(c[weight_], w, by_recipe(seen));
  if (packs) p.pack(w.rows, cached);
  if (w.has_rows()) p.record(c[weight_], w.by_rows(), seen.statistics);
}

// The same, for ranks that each cast some of the rows.
WeightCast Te::weight_cast(const WeightCall &c) const {
  const Observation seen = c[w_];
  const bool plain_product = recipe_.fprop == Operands::kPlain || recipe_.dgrad == Operands::kPlain;
  return {c[cache_], by_recipe(seen), seen.statistics,
          plain_product ? "a product in the host's precision reads the weight itself" : nullptr};
}

// y = x w^T + bias
void Te::forward(Pass &p, const ForwardCall &c) const {
  const Recipe &r = recipe_;
  const bool plain_call = r.fprop == Operands::kPlain || (c.is_evaluation() && !r.evaluates_in_fp8);
  const bool runs_plain = p.measures_or(plain_call) && r.forward_reads_weight();
  const bool runs_fp8 = p.measures_or(!plain_call) && r.fprop == Operands::kFp8;
  const Observation seen = c[x_];
  if (plain_call || seen.statistics.wanted) p.read(c.x());

  // Backward wants the columns of x, or its rows to decode; fprop and statistics want the rows. A
  // forward that is repeated before backward keeps nothing, but records the same.
  const bool casts = r.wgrad != Operands::kPlain && !c.weight.is_frozen() && !c.is_evaluation();
  Codes x = casts && c.keeps() ? p.saved_codes(r.wgrad == Operands::kFp8 ? kColumns : kRows, c.k(),
                                               r.operand_dtype, r.operand_granularity)
                               : Codes();
  if (!x.has_rows() && (runs_fp8 || (casts && seen.statistics.wanted)))
    p.add_rows(x, c.m(), c.k(), r.operand_dtype, r.operand_granularity);
  Cast how = by_recipe(seen);
  how.fp4_flags = r.x_flags;
  if (x.has_rows() || x.has_columns())
    p.cast(c.x(), x, how);
  else if (casts)
    p.record_amax(c.x(), seen.amax, c[nonfinite_]);
  if (x.has_rows()) p.record(c.x(), x.by_rows(), seen.statistics);

  if (runs_fp8)
    p.multiply(x.by_rows(), c[cache_].by_rows(), c.y(), c.bias(),
               r.per_tensor() || r.rows() ? uint32_t{kFastAccumulation} : 0);
  if (runs_plain) multiply_plain(p, p.read(c.x()), plain(c[weight_]), c.y(), c.bias());
}

}  // namespace octavo::te
