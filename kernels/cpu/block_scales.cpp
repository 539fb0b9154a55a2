/* Scales of block granularities: their check, and reading codes beside them.
 *
 * The numbers are those of kernels/format/scale_rules.h and e8m0.h.
 */
#include "kernels/cpu/block_scales.h"

#include "kernels/cpu/verbs.h"

namespace octavo {

void check_block_scale(Check *check, const octavo_scale *s, const char *name,
                       const octavo_tensor &t) {
  if (!check->ok()) return;
  const bool is_mx = is_mx_granularity(s->granularity);
  const uint32_t dtype = is_mx ? OCTAVO_E8M0FNU : OCTAVO_F32;
  if (s->dtype != dtype) {
    return check->fail(OCTAVO_UNSUPPORTED,
                       "%s.dtype = 0x%x; expected 0x%x (%s), that of %s.granularity = %u", name,
                       s->dtype, dtype, is_mx ? "float8_e8m0fnu" : "f32", name, s->granularity);
  }
  const int64_t rows = divide_up(t.rows, block_rows(s->granularity));
  const int64_t cols = divide_up(t.cols, block_cols(s->granularity));
  if (s->stride < cols) {
    return check->fail(OCTAVO_INVALID,
                       "%s.stride = %lld; expected at least %lld, the scales of one row of %lld "
                       "elements in blocks of %lld",
                       name, static_cast<long long>(s->stride), static_cast<long long>(cols),
                       static_cast<long long>(t.cols),
                       static_cast<long long>(block_cols(s->granularity)));
  }
  check->scale_rows(s, name, rows);
  if (!check->ok()) return;
  const bool is_empty = rows == 0 || cols == 0;
  const auto address = reinterpret_cast<uintptr_t>(s->data);
  if ((s->data == nullptr && !is_empty) ||
      address % static_cast<uintptr_t>(dtype_bytes(dtype)) != 0) {
    check->fail(OCTAVO_INVALID, "%s.data = %p; expected the aligned address of [%lld, %lld] scales",
                name, s->data, static_cast<long long>(rows), static_cast<long long>(cols));
  }
}

void load_block_values(const Context &context, const octavo_tensor &codes, const octavo_scale &s,
                       int64_t row, int64_t col, int64_t count, float *values) {
  context.level->load(codes.dtype, element(codes, row, col), count, values);
  const int64_t length = block_cols(s.granularity);
  const char *scales = scale_row(s, row);
  for (int64_t start = 0; start < count; start += length) {
    const int64_t rest = count - start;
    context.level->multiply(values + start, rest < length ? rest : length,
                            scale_inv_at(s, scales, (col + start) / length));
  }
}

octavo_status dequantize_blocks(const Context &context, const octavo_dequantize &c) {
  Check check(context, "dequantize");
  check.tensor(c.in, "in", Dtypes::kFloat8);
  check.tensor(c.out, "out", Dtypes::kPlain);
  if (check.ok()) check.same_shape(c.out, "out", c.in, "in");
  if (check.ok()) check_block_scale(&check, c.scale_inv, "scale_inv", *c.in);
  if (!check.ok()) return check.status();

  const int64_t cols = c.in->cols;
  return for_segment_ranges(context, c.in->rows, cols, [&](int64_t begin, int64_t end) {
    for_segments(cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      float values[kSegment];
      load_block_values(context, *c.in, *c.scale_inv, row, col, count, values);
      store_plain(context, *c.out, row, col, count, c.accumulate != 0, values);
    });
  });
}

}  // namespace octavo
