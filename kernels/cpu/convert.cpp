/* dequantize: codes or plain values to a plain tensor, overwriting or adding.
 *
 * A null scale_inv means that `in` is plain, so this verb is also the conversion between dtypes.
 * A code of 8 bits has 256 values, so where a level can look them up, codes become 16-bit values by
 * a table of what the plain way gives for each.
 */
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/cast_rows.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

constexpr int64_t kCodes = 256;
/* Fewer elements with one scale are done before a table is. */
constexpr int64_t kWorthATable = 2048;

/* The 16-bit values of all codes with one scale. */
class ValueTable {
 public:
  ValueTable(const Context &context, const octavo_dequantize &c) : context_(context), c_(c) {
    is_possible_ = context.level->casts.look_up != nullptr &&
                   is_dtype(c.in->dtype, Dtypes::kFloat8) && dtype_bytes(c.out->dtype) == 2 &&
                   c.accumulate == 0;
  }

  /* Null where no table helps. look_up needs values of codes that differ in their sign alone to do
   * the same, as those of scaled_by do. */
  const uint16_t *of_scale(float factor, int64_t count) {
    if (!is_possible_ || count < kWorthATable) return nullptr;
    uint8_t codes[kCodes];
    float values[kCodes];
    for (int64_t code = 0; code < kCodes; ++code) codes[code] = static_cast<uint8_t>(code);
    context_.level->load(c_.in->dtype, codes, kCodes, values);
    if (factor != 1.0f) context_.level->multiply(values, kCodes, factor);
    context_.level->store(c_.out->dtype, values, kCodes, entries_);
    return entries_;
  }

 private:
  const Context &context_;
  const octavo_dequantize &c_;
  bool is_possible_;
  uint16_t entries_[kCodes] = {};
};

/* `count` elements from (row, col) on, with one scale; table: their values, or null. */
void dequantize_part(const Context &context, const octavo_tensor &in, const octavo_tensor &out,
                     int64_t row, int64_t col, int64_t count, float factor, const uint16_t *table,
                     bool accumulates, bool past_caches) {
  if (table != nullptr) {
    return context.level->casts.look_up(
        table, reinterpret_cast<const uint8_t *>(element(in, row, col)), count,
        reinterpret_cast<uint16_t *>(element(out, row, col)), past_caches);
  }
  for (int64_t first = 0; first < count; first += kSegment) {
    const int64_t length = count - first < kSegment ? count - first : kSegment;
    float values[kSegment];
    load_values(context, in, row, col + first, length, factor, values);
    store_plain(context, out, row, col + first, length, accumulates, values);
  }
}

octavo_status dequantize_rows(const Context &context, const octavo_dequantize &c) {
  return for_runs(context, c.in->rows, c.in->cols, [&](auto &&for_each_run) {
    ValueTable tables(context, c);
    for_each_run([&](int64_t row, int64_t col, int64_t count) {
      const float factor = row_scale_inv(*c.scale_inv, row);
      dequantize_part(context, *c.in, *c.out, row, col, count, factor,
                      tables.of_scale(factor, count), c.accumulate != 0, false);
    });
  });
}

}  // namespace

octavo_status dequantize(const Context &context, const octavo_dequantize &c) {
  if (has_state_blocks(c.scale_inv)) return dequantize_state(context, c);
  if (has_blocks(c.scale_inv) || has_fp4_blocks(c.scale_inv)) return dequantize_blocks(context, c);
  if (is_row_scaled(c.scale_inv)) return dequantize_rows(context, c);

  const float factor = scale_value(c.scale_inv);
  const bool is_run = is_dense(*c.in) && is_dense(*c.out);
  const octavo_tensor in = is_run ? as_row(*c.in) : *c.in;
  const octavo_tensor out = is_run ? as_row(*c.out) : *c.out;
  ValueTable tables(context, c);
  const uint16_t *table = tables.of_scale(factor, in.rows * in.cols);
  const bool past_caches = goes_past_caches(tensor_bytes(in) + tensor_bytes(out));
  return for_runs(context, in.rows, in.cols, [&](auto &&for_each_run) {
    for_each_run([&](int64_t row, int64_t col, int64_t count) {
      dequantize_part(context, in, out, row, col, count, factor, table, c.accumulate != 0,
                      past_caches);
    });
  });
}

}  // namespace octavo
