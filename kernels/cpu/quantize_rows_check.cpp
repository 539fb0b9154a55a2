/* What quantize refuses beside one scale per row, and what every verb refuses of such scales. */
#include "kernels/cpu/row_scales.h"

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

void check_row_scale(Check *check, const octavo_scale *s, const char *name, int64_t rows) {
  if (!check->ok()) return;
  if (s->dtype != OCTAVO_F32) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "%s.dtype = 0x%x; expected 0x%x (f32), that of %s.granularity = 1", name,
                       s->dtype, OCTAVO_F32, name);
  }
  if (s->stride < 1) {
    return check->fail(OCTAVO_INVALID,
                       "%s.stride = %lld; expected at least 1, the scale of one row", name,
                       static_cast<long long>(s->stride));
  }
  check->scale_rows(s, name, rows);
  if (!check->ok()) return;
  if ((s->data == nullptr && rows > 0) ||
      reinterpret_cast<uintptr_t>(s->data) % sizeof(float) != 0) {
    check->fail(OCTAVO_INVALID, "%s.data = %p; expected the aligned address of %lld scales", name,
                s->data, static_cast<long long>(rows));
  }
}

octavo_status check_quantize_rows(const Context &context, const octavo_quantize &c) {
  Check check(context, "quantize");
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
