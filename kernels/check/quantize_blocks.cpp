/* What quantize refuses beside block granularities.
 *
 * Every output has scales of its own, and the rule must be one of their granularity.
 */
#include "kernels/check/quantize.h"

#include "kernels/check/scales.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

void check_output(Check *check, const octavo_quantize &c, const octavo_tensor *codes,
                  const octavo_scale *s, const char *name, const char *scale_name, int64_t rows,
                  int64_t cols) {
  check->tensor(codes, name, Dtypes::kFloat8);
  check->holds(codes, name, rows, cols);
  if (!check->ok()) return;
  if (s == nullptr) {
    return check->fail(OCTAVO_INVALID,
                       "%s is null beside %s; expected the scales of its own blocks", scale_name,
                       name);
  }
  if (!is_block_granularity(s->granularity)) {
    return check->fail(OCTAVO_INVALID,
                       "%s.granularity = %u; expected a block granularity (2, 3, 4 or 7), as the "
                       "other output has",
                       scale_name, s->granularity);
  }
  const bool is_mx = is_mx_granularity(s->granularity);
  if (is_mx ? !is_mx_rule(c.rule) : !is_block_rule(c.rule)) {
    return check->fail(OCTAVO_UNSUPPORTED, "rule = %u beside %s.granularity = %u; expected %s",
                       c.rule, scale_name, s->granularity,
                       is_mx ? "6 (mx up) or 7 (mx floor)"
                             : "1 (quotient), 2 (pow2), 8 (deepgemm) or 9 (deepgemm pow2)");
  }
  check_block_scale(check, s, scale_name, *codes);
}

}  // namespace

octavo_status check_quantize_blocks(const Caller &caller, const octavo_quantize &c) {
  Check check(caller, "quantize");
  check.tensor(c.in, "in", Dtypes::kAny);
  if (!check.ok()) return check.status();
  if (c.scale != nullptr || c.counter != nullptr) {
    check.fail(OCTAVO_INVALID,
               "%s is not null; expected null beside a block granularity, whose scales follow from "
               "each block",
               c.scale != nullptr ? "scale" : "counter");
  }
  if (c.out != nullptr) {
    check_output(&check, c, c.out, c.out_scale_inv, "out", "out_scale_inv", c.in->rows, c.in->cols);
  }
  if (c.out_t != nullptr) {
    check_output(&check, c, c.out_t, c.out_t_scale_inv, "out_t", "out_t_scale_inv", c.in->cols,
                 c.in->rows);
  }
  if (c.out == nullptr && c.out_t == nullptr) {
    check.fail(OCTAVO_INVALID,
               "out and out_t are null; expected one of them beside a block "
               "granularity");
  }
  if (!check.ok()) return check.status();
  const uint32_t dtype = c.out != nullptr ? c.out->dtype : c.out_t->dtype;
  if (c.out_t != nullptr && c.out_t->dtype != dtype) {
    check.fail(OCTAVO_INVALID, "out_t.dtype = 0x%x; expected that of out, 0x%x", c.out_t->dtype,
               dtype);
  }
  const bool is_deepgemm = c.rule == OCTAVO_RULE_DEEPGEMM || c.rule == OCTAVO_RULE_DEEPGEMM_POW2;
  if (is_deepgemm && dtype != OCTAVO_E4M3FN) {
    check.fail(OCTAVO_UNSUPPORTED,
               "rule = %u with codes of dtype 0x%x; expected 0x%x (float8_e4m3fn), for whose "
               "maximum of 448 the rule is written",
               c.rule, dtype, OCTAVO_E4M3FN);
  }
  check.accumulator(c.in_scale_inv, "in_scale_inv");
  check.accumulator(c.amax, "amax");
  check.accumulator(c.nonfinite, "nonfinite");
  check.format_max(c.format_max);
  check.eps(c.eps);
  return check.status();
}

}  // namespace octavo
