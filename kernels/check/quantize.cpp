/* What quantize refuses: of every call, then for scales of the whole tensor, for scales of rows or
 * blocks, and for states. What quantize_stats refuses.
 */
#include "kernels/check/calls.h"
#include "kernels/check/scales.h"
#include "kernels/check/verbs.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

constexpr char kOrBlocks[] =
    ", or 1 (per row) or a block granularity (2, 3, 4, 6) for out and out_t alike";

void check_same_codes(Check *check, const octavo_quantize &c) {
  if (!check->ok() || c.out == nullptr || c.out_t == nullptr || c.out->dtype == c.out_t->dtype) {
    return;
  }
  check->fail(OCTAVO_INVALID, "out_t.dtype = 0x%x; expected 0x%x, as out", c.out_t->dtype,
              c.out->dtype);
}

void check_collected(Check *check, const octavo_quantize &c) {
  check->accumulators(
      {{c.in_scale_inv, "in_scale_inv"}, {c.amax, "amax"}, {c.nonfinite, "nonfinite"}});
}

void check_tensor_scaled(Check *check, const octavo_quantize &c) {
  if (c.out != nullptr) {
    check->tensor(c.out, "out", dtypes_of(OCTAVO_KIND_QUANTIZE, OCTAVO_PER_TENSOR));
    if (!check->ok()) return;
    check->at_least(c.out->rows, c.in->rows, "out.rows", "in.rows");
    check->at_least(c.out->cols, c.in->cols, "out.cols", "in.cols");
  }
  if (c.out_t != nullptr) {
    check->tensor(c.out_t, "out_t", dtypes_of(OCTAVO_KIND_QUANTIZE, OCTAVO_PER_TENSOR));
    if (!check->ok()) return;
    check->at_least(c.out_t->rows, c.in->cols, "out_t.rows", "in.cols");
    check->at_least(c.out_t->cols, c.in->rows, "out_t.cols", "in.rows");
  }
  check_same_codes(check, c);
  const bool casts = c.out != nullptr || c.out_t != nullptr;
  check->scale(c.out_scale_inv, "out_scale_inv", !casts, kOrBlocks);
  check->scale(c.out_t_scale_inv, "out_t_scale_inv", true, kOrBlocks);
  check->accumulators({{c.scale, "scale"}});
  check_collected(check, c);
  if (c.rule == OCTAVO_RULE_GIVEN) return;
  check->accumulators({{c.counter, "counter"}});
  check->rule(c.rule);
  check->format_max(c.format_max);
  check->eps(c.eps);
  if (casts && c.counter != nullptr) check->not_null(c.scale, "scale");
}

/* One scale per row, or blocks: every output has scales of its own, made from its own elements. */
struct Granularity {
  bool is_block;
  uint32_t granularity; /* one of the kind: all of it take the same dtypes */
  const char *name;
  const char *follows;
  const char *parts;
  const char *expected;
};
constexpr Granularity kRows = {
    false,  OCTAVO_PER_ROW, "one scale per row", "which follows from the row",
    "rows", "1 (per row)"};
constexpr Granularity kBlocks = {true,
                                 OCTAVO_BLOCK_1X128,
                                 "a block granularity",
                                 "whose scales follow from each block",
                                 "blocks",
                                 "a block granularity (2, 3, 4 or 6)"};
static_assert(OCTAVO_BLOCK_1X128 == 2 && OCTAVO_BLOCK_128X128 == 3 && OCTAVO_BLOCK_1X32 == 4 &&
                  OCTAVO_BLOCK_32X32 == 6,
              "the text above names these numbers");

void check_output(Check *check, const octavo_quantize &c, const Granularity &g,
                  const octavo_tensor *codes, const octavo_scale *s, const char *name,
                  const char *scale_name, int64_t rows, int64_t cols) {
  if (codes == nullptr) return;
  check->tensor(codes, name, dtypes_of(OCTAVO_KIND_QUANTIZE, g.granularity));
  check->holds(codes, name, rows, cols);
  if (!check->ok()) return;
  if (s == nullptr) {
    return check->fail(OCTAVO_INVALID,
                       "%s is null, but %s is given; expected the scales of these %s", scale_name,
                       name, g.parts);
  }
  if (g.is_block ? !is_block_granularity(s->granularity) : !is_row_scaled(s)) {
    return check->fail(OCTAVO_INVALID, "%s.granularity = %u; expected %s, as the other output has",
                       scale_name, s->granularity, g.expected);
  }
  if (!g.is_block) return check_row_scale(check, s, scale_name, codes->rows);
  const bool is_mx = is_mx_granularity(s->granularity);
  if (is_mx && !is_mx_rule(c.rule)) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "rule = %u with %s.granularity = %u; expected %d (mx up) or %d (mx floor)",
                       c.rule, scale_name, s->granularity, OCTAVO_RULE_MX_UP, OCTAVO_RULE_MX_FLOOR);
  }
  if (!is_mx && !is_block_rule(c.rule)) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "rule = %u with %s.granularity = %u; expected %d (quotient), %d (pow2), %d "
                       "(deepgemm) or %d (deepgemm pow2)",
                       c.rule, scale_name, s->granularity, OCTAVO_RULE_QUOTIENT, OCTAVO_RULE_POW2,
                       OCTAVO_RULE_DEEPGEMM, OCTAVO_RULE_DEEPGEMM_POW2);
  }
  check_block_scale(check, s, scale_name, *codes);
}

void check_own_scales(Check *check, const octavo_quantize &c, const Granularity &g) {
  if (c.scale != nullptr || c.counter != nullptr) {
    check->fail(OCTAVO_INVALID, "%s is not null; expected null with %s, %s",
                c.scale != nullptr ? "scale" : "counter", g.name, g.follows);
  }
  if (c.out == nullptr && c.out_t == nullptr) {
    check->fail(OCTAVO_INVALID, "out and out_t are null; expected one of them with %s", g.name);
  }
  check_output(check, c, g, c.out, c.out_scale_inv, "out", "out_scale_inv", c.in->rows, c.in->cols);
  check_output(check, c, g, c.out_t, c.out_t_scale_inv, "out_t", "out_t_scale_inv", c.in->cols,
               c.in->rows);
  check_same_codes(check, c);
  if (!check->ok()) return;
  const uint32_t dtype = c.out != nullptr ? c.out->dtype : c.out_t->dtype;
  const bool is_deepgemm = c.rule == OCTAVO_RULE_DEEPGEMM || c.rule == OCTAVO_RULE_DEEPGEMM_POW2;
  if (!g.is_block) {
    check->rule(c.rule);
  } else if (is_deepgemm && dtype != OCTAVO_E4M3FN) {
    check->fail(OCTAVO_UNSUPPORTED,
                "rule = %u with codes of dtype 0x%x; expected 0x%x (float8_e4m3fn), for whose "
                "maximum of 448 the rule is written",
                c.rule, dtype, OCTAVO_E4M3FN);
  }
  check_collected(check, c);
  check->format_max(c.format_max, g.is_block ? 1.0f : Check::kLeastWithMargin);
  check->eps(c.eps);
}

void check_state(Check *check, const octavo_quantize &c) {
  check_state_dense(check, c.in, "in");
  check->tensor(c.out, "out", Dtypes::kQuantized);
  check->same_shape(c.out, "out", c.in, "in");
  check_state_dense(check, c.out, "out");
  check_state_codes(check, c.out, "out");
  if (check->ok()) check_state_scale(check, c.out_scale_inv, "out_scale_inv", *c.out);
  if (c.out_t != nullptr || c.scale != nullptr || c.counter != nullptr) {
    const char *name = c.out_t != nullptr ? "out_t" : c.scale != nullptr ? "scale" : "counter";
    check->fail(OCTAVO_INVALID,
                "%s is not null; expected null with out_scale_inv.granularity = %u, whose scales "
                "follow from each block",
                name, c.out_scale_inv->granularity);
  }
  check_collected(check, c);
}

/* Of codes that quantize has written, per tensor, of rows or of blocks. */
void check_scale_of(Check *check, const octavo_tensor &codes, const octavo_scale *s) {
  if (has_blocks(s)) {
    check_block_scale(check, s, "scale_inv", codes);
  } else if (is_row_scaled(s)) {
    check_row_scale(check, s, "scale_inv", codes.rows);
  } else {
    check->scale(s, "scale_inv", false, ", 1 (of rows) or a block granularity (2, 3, 4, 6)");
  }
}

}  // namespace

octavo_status check_quantize(const Caller &caller, const octavo_quantize *c,
                             const DeviceLimits &limits) {
  Check check(caller, "quantize");
  if (!check.call(c)) return check.status();
  check.flags(c->flags, flags_of(OCTAVO_KIND_QUANTIZE), "flags");
  if (c->rounding != OCTAVO_ROUND_NEAREST_EVEN)
    check.fail(OCTAVO_UNSUPPORTED, "rounding = %u; expected %d (to nearest, ties to even)",
               c->rounding, OCTAVO_ROUND_NEAREST_EVEN);
  check.tensor(c->in, "in", Dtypes::kAny);
  if (!check.ok()) return check.status();
  if (is_state_scaled(*c)) {
    check_state(&check, *c);
  } else if (limits.takes_fp4 && is_fp4_scaled(*c)) {
    check_fp4_quantize(&check, *c);
  } else if (has_row_scales(*c) || is_block_scaled(*c)) {
    check_own_scales(&check, *c, has_row_scales(*c) ? kRows : kBlocks);
  } else {
    check_tensor_scaled(&check, *c);
  }
  return check.status();
}

octavo_status check_quantize_stats(const Caller &caller, const octavo_quantize_stats *c) {
  Check check(caller, "quantize_stats");
  if (!check.call(c)) return check.status();
  const uint32_t granularity = has_blocks(c->scale_inv) ? c->scale_inv->granularity : 0;
  check.tensor(c->in, "in", Dtypes::kPlain);
  check.tensor(c->codes, "codes", dtypes_of(OCTAVO_KIND_QUANTIZE_STATS, granularity));
  if (!check.ok()) return check.status();
  check.at_least(c->codes->rows, c->in->rows, "codes.rows", "in.rows");
  check.at_least(c->codes->cols, c->in->cols, "codes.cols", "in.cols");
  check_scale_of(&check, *c->codes, c->scale_inv);
  check.accumulators({{c->saturated, "saturated"},
                      {c->underflow, "underflow"},
                      {c->signal, "signal"},
                      {c->noise, "noise"}});
  return check.status();
}

octavo_status check_round_codes(const Caller &caller, const octavo_round_codes *c) {
  Check check(caller, "round_codes");
  if (!check.call(c)) return check.status();
  check.tensor(c->in, "in", Dtypes::kPlain);
  check.tensor(c->codes, "codes", dtypes_of(OCTAVO_KIND_ROUND_CODES, OCTAVO_PER_TENSOR));
  check.flags(c->is_transposed, 1, "is_transposed");
  check.reserved(c->reserved, "the call struct");
  if (!check.ok()) return check.status();
  const bool turns = c->is_transposed != 0;
  check.holds(c->codes, "codes", turns ? c->in->cols : c->in->rows,
              turns ? c->in->rows : c->in->cols);
  check_scale_of(&check, *c->codes, c->scale_inv);
  check.accumulators({{c->count, "count"}});
  return check.status();
}

}  // namespace octavo
