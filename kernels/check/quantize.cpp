/* What quantize refuses: of every call, beside one scale per tensor, and beside states. */
#include "kernels/check/quantize.h"

#include "kernels/check/calls.h"
#include "kernels/check/scales.h"
#include "kernels/check/verbs.h"

namespace octavo {
namespace {

constexpr char kOrBlocks[] =
    ", or 1 (per row) or a block granularity (2, 3, 4, 7) for out and out_t alike";

octavo_status check_tensor_scaled(const Caller &caller, const octavo_quantize *c) {
  Check check(caller, "quantize");
  check.tensor(c->in, "in", Dtypes::kAny);
  if (c->out != nullptr) {
    check.tensor(c->out, "out", Dtypes::kQuantized);
    if (check.ok()) {
      check.at_least(c->out->rows, c->in->rows, "out.rows", "in.rows");
      check.at_least(c->out->cols, c->in->cols, "out.cols", "in.cols");
    }
  }
  if (c->out_t != nullptr) {
    check.tensor(c->out_t, "out_t", Dtypes::kQuantized);
    if (check.ok()) {
      check.at_least(c->out_t->rows, c->in->cols, "out_t.rows", "in.cols");
      check.at_least(c->out_t->cols, c->in->rows, "out_t.cols", "in.rows");
    }
    if (check.ok() && c->out != nullptr && c->out->dtype != c->out_t->dtype) {
      check.fail(OCTAVO_INVALID, "out_t.dtype = 0x%x; expected that of out, 0x%x", c->out_t->dtype,
                 c->out->dtype);
    }
  }
  const bool casts = c->out != nullptr || c->out_t != nullptr;
  check.scale(c->out_scale_inv, "out_scale_inv", !casts, kOrBlocks);
  check.scale(c->out_t_scale_inv, "out_t_scale_inv", true, kOrBlocks);
  check.accumulator(c->in_scale_inv, "in_scale_inv");
  check.accumulator(c->scale, "scale");
  check.accumulator(c->counter, "counter");
  check.accumulator(c->amax, "amax");
  check.accumulator(c->nonfinite, "nonfinite");
  if (c->rule != OCTAVO_RULE_GIVEN) {
    check.rule(c->rule);
    check.format_max(c->format_max);
    check.eps(c->eps);
  }
  if (casts && c->rule != OCTAVO_RULE_GIVEN && c->counter != nullptr) {
    check.not_null(c->scale, "scale");
  }
  return check.status();
}

octavo_status check_quantize_state(const Caller &caller, const octavo_quantize &c) {
  Check check(caller, "quantize");
  check.tensor(c.in, "in", Dtypes::kAny);
  check_state_dense(&check, c.in, "in");
  check.tensor(c.out, "out", Dtypes::kQuantized);
  if (check.ok()) check.same_shape(c.out, "out", c.in, "in");
  check_state_dense(&check, c.out, "out");
  check_state_codes(&check, c.out, "out");
  check_state_scale(&check, c.out_scale_inv, "out_scale_inv");
  if (c.out_t != nullptr || c.scale != nullptr || c.counter != nullptr) {
    const char *name = c.out_t != nullptr ? "out_t" : c.scale != nullptr ? "scale" : "counter";
    check.fail(OCTAVO_INVALID,
               "%s is not null; expected null beside out_scale_inv.granularity = %u, whose scales "
               "follow from each block",
               name, c.out_scale_inv->granularity);
  }
  check.accumulator(c.in_scale_inv, "in_scale_inv");
  check.accumulator(c.amax, "amax");
  check.accumulator(c.nonfinite, "nonfinite");
  return check.status();
}

}  // namespace

octavo_status check_quantize(const Caller &caller, const octavo_quantize *c) {
  Check head(caller, "quantize");
  if (head.call(c) && (c->flags & ~uint32_t{OCTAVO_QUANTIZE_KEEP_POSITIVE}) != 0) {
    head.fail(OCTAVO_UNSUPPORTED, "flags = 0x%x; expected bits of 0x%x", c->flags,
              OCTAVO_QUANTIZE_KEEP_POSITIVE);
  }
  if (!head.ok()) return head.status();
  if (is_state_scaled(*c)) return check_quantize_state(caller, *c);
  if (has_row_scales(*c)) return check_quantize_rows(caller, *c);
  if (is_block_scaled(*c)) return check_quantize_blocks(caller, *c);
  return check_tensor_scaled(caller, c);
}

}  // namespace octavo
