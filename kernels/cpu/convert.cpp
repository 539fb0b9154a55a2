/* dequantize: codes or plain values to a plain tensor, overwriting or adding.
 *
 * A null scale_inv means that `in` is plain, so this verb is also the conversion between dtypes.
 */
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"

namespace octavo {

octavo_status dequantize(void *ctx, const octavo_dequantize *c) {
  const Context &context = context_of(ctx);
  Check check(context, "dequantize");
  if (!check.call(c)) return check.status();
  if (c->scale_inv != nullptr && is_state_granularity(c->scale_inv->granularity)) {
    return dequantize_state(context, *c);
  }
  if (has_blocks(c->scale_inv)) return dequantize_blocks(context, *c);
  check.tensor(c->in, "in", Dtypes::kAny);
  check.tensor(c->out, "out", Dtypes::kPlain);
  if (check.ok()) check.same_shape(c->out, "out", c->in, "in");
  check.scale(c->scale_inv, "scale_inv", true,
              ", a block granularity (2, 3, 4, 7) or one of optimizer states (5, 6)");
  if (!check.ok()) return check.status();

  const float factor = scale_value(c->scale_inv);
  const int64_t cols = c->in->cols;
  return for_segment_ranges(context, c->in->rows, cols, [&](int64_t begin, int64_t end) {
    for_segments(cols, begin, end, [&](int64_t row, int64_t col, int64_t count) {
      float values[kSegment];
      load_values(context, *c->in, row, col, count, factor, values);
      store_plain(context, *c->out, row, col, count, c->accumulate != 0, values);
    });
  });
}

}  // namespace octavo
