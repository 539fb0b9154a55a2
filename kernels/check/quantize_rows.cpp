/* What quantize refuses beside one scale per row. */
#include "kernels/check/quantize.h"

#include "kernels/check/scales.h"

namespace octavo {
namespace {

void check_output(Check *check, const octavo_tensor *codes, const octavo_scale *s, const char *name,
                  const char *scale_name, int64_t rows, int64_t cols) {
  check->tensor(codes, name, Dtypes::kQuantized);
  check->holds(codes, name, rows, cols);
  if (!check->ok()) return;
  if (s == nullptr) {
    return check->fail(OCTAVO_INVALID, "%s is null beside %s; expected the scales of its own rows",
                       scale_name, name);
  }
  if (!is_row_scaled(s)) {
    return check->fail(OCTAVO_INVALID,
                       "%s.granularity = %u; expected 1 (per row), as the other output has",
                       scale_name, s->granularity);
  }
  check_row_scale(check, s, scale_name, codes->rows);
}

}  // namespace

octavo_status check_quantize_rows(const Caller &caller, const octavo_quantize &c) {
  Check check(caller, "quantize");
  check.tensor(c.in, "in", Dtypes::kAny);
  if (!check.ok()) return check.status();
  if (c.scale != nullptr || c.counter != nullptr) {
    check.fail(OCTAVO_INVALID,
               "%s is not null; expected null beside one scale per row, which follows from the row",
               c.scale != nullptr ? "scale" : "counter");
  }
  if (c.out == nullptr && c.out_t == nullptr) {
    check.fail(OCTAVO_INVALID,
               "out and out_t are null; expected one of them beside one scale per row");
  }
  if (c.out != nullptr && check.ok()) {
    check_output(&check, c.out, c.out_scale_inv, "out", "out_scale_inv", c.in->rows, c.in->cols);
  }
  if (c.out_t != nullptr && check.ok()) {
    check_output(&check, c.out_t, c.out_t_scale_inv, "out_t", "out_t_scale_inv", c.in->cols,
                 c.in->rows);
  }
  if (check.ok() && c.out != nullptr && c.out_t != nullptr && c.out->dtype != c.out_t->dtype) {
    check.fail(OCTAVO_INVALID, "out_t.dtype = 0x%x; expected that of out, 0x%x", c.out_t->dtype,
               c.out->dtype);
  }
  if (check.ok()) check.rule(c.rule);
  check.accumulator(c.in_scale_inv, "in_scale_inv");
  check.accumulator(c.amax, "amax");
  check.accumulator(c.nonfinite, "nonfinite");
  check.format_max(c.format_max);
  check.eps(c.eps);
  return check.status();
}

}  // namespace octavo
