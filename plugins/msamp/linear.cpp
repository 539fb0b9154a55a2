// fprop, dgrad and wgrad on E4M3 and E5M2 codes, with the weight gradient kept in a slot.
#include "msamp.h"

namespace octavo::msamp {

using plugin::kRows;

// The scale follows from the amax of the tensor itself.
Cast Msamp::by_rule(const octavo_scale &in_scale_inv) const {
  Cast how;
  how.rule = options().rule();
  how.in_scale_inv = plugin::floats_of(in_scale_inv);
  return how;
}

// The scale follows from the history, once that is as long as its window.
Cast Msamp::delayed(const plugin::Observation &history) const {
  Cast how = by_rule();
  how.scale = history.scale;
  how.counter = history.counter;
  how.window = static_cast<float>(options().amax_history_len);
  how.amax = history.amax;
  return how;
}

// f16 is cast. E4M3 is moved and transposed but not changed: the scale_inv stays the weight's own,
// and the kernel writes the 1 of this cast aside.
void Msamp::encode_weight(Pass &p, const Operand &weight, Codes &codes) const {
  Cast how = by_rule(weight.scale_inv);
  if (weight.codes.dtype == OCTAVO_E4M3FN) {
    codes.scale_inv = p.workspace().scale_inv();
    how = Cast();
    how.rule = OCTAVO_RULE_GIVEN;
  }
  p.cast(weight.codes, codes, how);
}

void Msamp::cast_weight(Pass &p, const plugin::WeightCall &c) const {
  if (!options().weight_cache || !c.parameter.has_linear) return;
  Codes codes = c[cache_];
  encode_weight(p, c[weight_].by_rows(), codes);
}

// Codes of the weight for fprop (rows) or dgrad (columns): from the cache, from the slot itself, or
// cast now.
Operand Msamp::weight(Pass &p, const Addresses &c, const Parameter &w,
                      plugin::Directions direction) const {
  const Codes kept = c[cache_];
  if (direction == kRows ? kept.has_rows() : kept.has_columns())
    return direction == kRows ? kept.by_rows() : kept.by_columns();
  const Operand stored = c[weight_].by_rows();
  const bool is_codes = stored.codes.dtype == OCTAVO_E4M3FN;
  if (direction == kRows && is_codes && !is_padded(w)) return stored;
  Codes codes = p.codes(w.rows, w.cols, OCTAVO_E4M3FN, direction);
  encode_weight(p, stored, codes);
  if (is_codes) codes.scale_inv = stored.scale_inv;
  return direction == kRows ? codes.by_rows() : codes.by_columns();
}

// y = x w^T + bias
void Msamp::forward(Pass &p, const plugin::ForwardCall &c) const {
  Codes x = c.keeps() ? p.saved_columns(c.k(), OCTAVO_E4M3FN) : Codes();
  p.add_rows(x, c.m(), c.k(), OCTAVO_E4M3FN);
  const plugin::Observation seen = c[x_];
  p.cast(c.x(), x, delayed(seen));
  p.record(c.x(), x.by_rows(), seen.statistics);
  const Operand w = weight(p, c, c.weight, kRows);
  // MS-AMP 0.4.0 adds the bias to the rounded product.
  const uint32_t rounds = options().parity() ? uint32_t{plugin::kBiasAfter} : 0;
  p.multiply(x.by_rows(), w, c.y(), c.bias(), plugin::kFastAccumulation | rounds);
}

// dx = dy w, dw += dy^T x, db += column sums of dy
void Msamp::backward(Pass &p, const plugin::BackwardCall &c) const {
  Codes dy = p.codes(c.m(), c.n(), OCTAVO_E5M2, c.wants_dw() ? plugin::kBothDirections : kRows);
  const plugin::Observation seen = c[dy_];
  // While dy may still be in a cache.
  if (c.wants_db()) p.add_column_sums(c.dy(), c.db(), c.accumulates());
  p.cast(c.dy(), dy, delayed(seen));
  p.record(c.dy(), dy.by_rows(), seen.statistics);
  if (c.wants_dx()) p.multiply(dy.by_rows(), weight(p, c, c.weight, plugin::kColumns), c.dx());
  if (c.wants_dw()) add_weight_gradient(p, c, dy);
}

// Into the gradient slot. In E4M3 the old codes are widened, the product is added in fp32, and the
// sum is cast again with its own scale.
void Msamp::add_weight_gradient(Pass &p, const plugin::BackwardCall &c, const Codes &dy) const {
  const Codes x = p.saved_columns(c.k(), OCTAVO_E4M3FN);
  const uint32_t how = c.accumulates() ? uint32_t{plugin::kAccumulate} : 0;
  Codes gradient = c[gradient_];
  if (gradient.rows.dtype == OCTAVO_F32) {
    p.multiply(dy.by_columns(), x.by_columns(), gradient.rows, nullptr, how);
    return p.record_amax(gradient.rows, nullptr, c[nonfinite_]);  // which a cast would have done
  }
  octavo_tensor padded = p.workspace().tensor(dy.columns.rows, x.columns.rows, OCTAVO_F32);
  octavo_tensor sum = padded;
  sum.rows = c.n(), sum.cols = c.k();
  if (c.accumulates()) {
    if (is_padded(c.weight))
      p.clear(padded.data, static_cast<uint64_t>(padded.rows * padded.cols) * sizeof(float));
    p.decode(gradient.by_rows(), sum);
  }
  p.multiply(dy.by_columns(), x.by_columns(), padded, nullptr, how | plugin::kWithPadding);
  p.cast(sum, gradient, by_rule());
}

}  // namespace octavo::msamp
