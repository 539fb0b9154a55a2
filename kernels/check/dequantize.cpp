/* What dequantize refuses, for every granularity. */
#include "kernels/check/verbs.h"

#include "kernels/check/scales.h"

namespace octavo {
namespace {

octavo_status check_state(Check *check, const octavo_dequantize &c) {
  check->tensor(c.in, "in", Dtypes::kAny);
  check_state_dense(check, c.in, "in");
  check_state_codes(check, c.in, "in");
  check->tensor(c.out, "out", Dtypes::kPlain);
  if (check->ok()) check->same_shape(c.out, "out", c.in, "in");
  check_state_dense(check, c.out, "out");
  check_state_scale(check, c.scale_inv, "scale_inv");
  return check->status();
}

octavo_status check_blocks(Check *check, const octavo_dequantize &c) {
  check->tensor(c.in, "in", Dtypes::kFloat8);
  check->tensor(c.out, "out", Dtypes::kPlain);
  if (check->ok()) check->same_shape(c.out, "out", c.in, "in");
  if (check->ok()) check_block_scale(check, c.scale_inv, "scale_inv", *c.in);
  return check->status();
}

}  // namespace

octavo_status check_dequantize(const Caller &caller, const octavo_dequantize *c) {
  Check check(caller, "dequantize");
  if (!check.call(c)) return check.status();
  if (has_state_blocks(c->scale_inv)) return check_state(&check, *c);
  if (has_blocks(c->scale_inv)) return check_blocks(&check, *c);
  const bool has_rows = is_row_scaled(c->scale_inv);
  check.tensor(c->in, "in", has_rows ? Dtypes::kQuantized : Dtypes::kAny);
  check.tensor(c->out, "out", Dtypes::kPlain);
  if (check.ok()) check.same_shape(c->out, "out", c->in, "in");
  if (has_rows) {
    if (check.ok()) check_row_scale(&check, c->scale_inv, "scale_inv", c->in->rows);
  } else {
    check.scale(
        c->scale_inv, "scale_inv", true,
        ", 1 (per row), a block granularity (2, 3, 4, 7) or one of optimizer states (5, 6)");
  }
  return check.status();
}

}  // namespace octavo
