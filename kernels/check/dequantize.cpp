/* What dequantize refuses, for every granularity. */
#include "kernels/check/verbs.h"

#include "kernels/check/scales.h"

namespace octavo {

octavo_status check_dequantize(const Caller &caller, const octavo_dequantize *c,
                               const DeviceLimits &limits) {
  Check check(caller, "dequantize");
  if (!check.call(c)) return check.status();
  const bool is_state = has_state_blocks(c->scale_inv);
  const bool is_block = has_blocks(c->scale_inv);
  const bool is_row = is_row_scaled(c->scale_inv);
  const bool is_fp4 = limits.takes_fp4 && has_fp4_blocks(c->scale_inv);
  const bool has_own = is_fp4 || is_block || is_row;
  check.tensor(c->in, "in",
               dtypes_of(OCTAVO_KIND_DEQUANTIZE,
                         has_own ? c->scale_inv->granularity : uint32_t{OCTAVO_PER_TENSOR}));
  if (is_state) check_state_dense(&check, c->in, "in");
  if (is_state) check_state_codes(&check, c->in, "in");
  check.tensor(c->out, "out", Dtypes::kPlain);
  check.flags(c->accumulate, 1, "accumulate");
  check.reserved(c->reserved, "the call struct");
  check.same_shape(c->out, "out", c->in, "in");
  if (!check.ok()) return check.status();
  if (is_state) {
    check_state_dense(&check, c->out, "out");
    check_state_scale(&check, c->scale_inv, "scale_inv", *c->in);
  } else if (is_fp4) {
    check_fp4_scale(&check, c->scale_inv, "scale_inv", *c->in);
  } else if (is_block) {
    check_block_scale(&check, c->scale_inv, "scale_inv", *c->in);
  } else if (is_row) {
    check_row_scale(&check, c->scale_inv, "scale_inv", c->in->rows);
  } else {
    check.scale(
        c->scale_inv, "scale_inv", true,
        ", 1 (per row), a block granularity (2, 3, 4, 6) or one of optimizer states (5, 32768)");
  }
  return check.status();
}

}  // namespace octavo
