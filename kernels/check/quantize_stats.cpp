/* What quantize_stats refuses. */
#include "kernels/check/verbs.h"

#include "kernels/check/scales.h"

namespace octavo {

octavo_status check_quantize_stats(const Caller &caller, const octavo_quantize_stats *c) {
  Check check(caller, "quantize_stats");
  if (!check.call(c)) return check.status();
  const bool is_block = has_blocks(c->scale_inv);
  check.tensor(c->in, "in", Dtypes::kPlain);
  check.tensor(c->codes, "codes", is_block ? Dtypes::kFloat8 : Dtypes::kQuantized);
  if (!check.ok()) return check.status();
  check.at_least(c->codes->rows, c->in->rows, "codes.rows", "in.rows");
  check.at_least(c->codes->cols, c->in->cols, "codes.cols", "in.cols");
  if (is_block) {
    check_block_scale(&check, c->scale_inv, "scale_inv", *c->codes);
  } else {
    check.scale(c->scale_inv, "scale_inv", false, " or a block granularity (2, 3, 4, 7)");
  }
  check.accumulator(c->saturated, "saturated");
  check.accumulator(c->underflow, "underflow");
  check.accumulator(c->signal, "signal");
  check.accumulator(c->noise, "noise");
  return check.status();
}

}  // namespace octavo
