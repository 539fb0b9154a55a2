/* quantize: in -> codes and transposed codes, with amax, nonfinite and the current-scaling rule.
 *
 * With a given scale there is one pass over the input. With a rule there are two, and the first
 * must have seen every element before the second starts.
 */
#include <cstring>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/padding.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

/* A block of the input that one body call reads, casts and transposes while it is in cache. */
constexpr int64_t kBlockRows = 32;
constexpr int64_t kBlockCols = 256;

struct Block {
  int64_t row;
  int64_t col;
  int64_t rows;
  int64_t cols;
};

Block block_at(const octavo_tensor &t, int64_t index) {
  const int64_t per_row = divide_up(t.cols, kBlockCols);
  Block b = {index / per_row * kBlockRows, index % per_row * kBlockCols, kBlockRows, kBlockCols};
  if (t.rows - b.row < b.rows) b.rows = t.rows - b.row;
  if (t.cols - b.col < b.cols) b.cols = t.cols - b.col;
  return b;
}

template <typename Body>
octavo_status for_blocks(const Context &context, const octavo_tensor &t, Body &&body) {
  if (t.rows == 0 || t.cols == 0) return OCTAVO_OK;
  const int64_t count = divide_up(t.rows, kBlockRows) * divide_up(t.cols, kBlockCols);
  const int64_t grain = divide_up(kGrainElements, kBlockRows * kBlockCols);
  return context.for_ranges(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) body(block_at(t, index));
  });
}

/* One row of a block as fp32 values. */
const float *block_row(const Context &context, const octavo_quantize &c, float factor,
                       const Block &b, int64_t row, float *buffer) {
  return row_values(context, *c.in, b.row + row, b.col, b.cols, factor, buffer);
}

template <typename Code>
void transpose_block(const void *codes, const Block &b, const octavo_tensor &out_t) {
  const Code *from = static_cast<const Code *>(codes);
  for (int64_t col = 0; col < b.cols; ++col) {
    Code *to = reinterpret_cast<Code *>(element(out_t, b.col + col, b.row));
    for (int64_t row = 0; row < b.rows; ++row) to[row] = from[row * kBlockCols + col];
  }
}

/* Writes the codes of one block to out and out_t. */
void cast_block(const Context &context, const octavo_quantize &c, float factor, float scale,
                const Block &b, ValueStats *stats) {
  alignas(64) float values[kBlockCols];
  alignas(64) uint16_t codes[kBlockRows * kBlockCols]; /* of 8 or 16 bits each */
  const uint32_t dtype = c.out != nullptr ? c.out->dtype : c.out_t->dtype;
  const int64_t bytes = dtype_bytes(dtype);
  for (int64_t row = 0; row < b.rows; ++row) {
    const float *in = block_row(context, c, factor, b, row, values);
    if (stats != nullptr) merge(stats, context.level->measure(in, b.cols));
    void *out = c.out == nullptr ? nullptr : element(*c.out, b.row + row, b.col);
    void *to =
        c.out_t == nullptr ? out : reinterpret_cast<char *>(codes) + row * kBlockCols * bytes;
    context.level->cast(dtype, in, b.cols, scale, to);
    if ((c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0) keep_positive(dtype, in, b.cols, to);
    if (out != nullptr && out != to) std::memcpy(out, to, static_cast<size_t>(b.cols * bytes));
  }
  if (c.out_t == nullptr) return;
  if (bytes == 1) {
    transpose_block<uint8_t>(codes, b, *c.out_t);
  } else {
    transpose_block<uint16_t>(codes, b, *c.out_t);
  }
}

constexpr char kOrBlocks[] = " or a block granularity (2, 3, 4, 7) for out and out_t alike";

octavo_status check_tensor_scaled(const Context &context, const octavo_quantize *c) {
  Check check(context, "quantize");
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

octavo_status quantize_tensor(const Context &context, const octavo_quantize *c) {
  octavo_status status = OCTAVO_OK;
  const float factor = c->in_scale_inv == nullptr ? 1.0f : *c->in_scale_inv;
  const bool casts = c->out != nullptr || c->out_t != nullptr;
  const bool is_given =
      c->rule == OCTAVO_RULE_GIVEN || (c->counter != nullptr && *c->counter >= c->window);
  const bool wants_stats = c->amax != nullptr || c->nonfinite != nullptr;
  const bool measures_first = casts ? !is_given : wants_stats;
  SharedStats shared;
  if (measures_first) {
    status = for_blocks(context, *c->in, [&](const Block &b) {
      float values[kBlockCols];
      ValueStats stats;
      for (int64_t row = 0; row < b.rows; ++row) {
        const float *in = block_row(context, *c, factor, b, row, values);
        merge(&stats, context.level->measure(in, b.cols));
      }
      shared.add(stats);
    });
    if (status != OCTAVO_OK) return status;
  }
  if (casts) {
    const float kept = c->scale == nullptr ? 1.0f : *c->scale;
    const float amax = shared.amax() < c->eps ? c->eps : shared.amax();
    const float scale = is_given ? kept : scale_by_rule(c->rule, amax, kept, c->format_max, 0);
    const bool measures_now = wants_stats && !measures_first;
    status = for_blocks(context, *c->in, [&](const Block &b) {
      ValueStats stats;
      cast_block(context, *c, factor, scale, b, measures_now ? &stats : nullptr);
      if (measures_now) shared.add(stats);
    });
    if (status != OCTAVO_OK) return status;
    for (const octavo_scale *s : {c->out_scale_inv, c->out_t_scale_inv}) {
      if (s != nullptr) *static_cast<float *>(s->data) = 1.0f / scale;
    }
    clear_padding(c->out, c->in->rows, c->in->cols);
    clear_padding(c->out_t, c->in->cols, c->in->rows);
  }
  shared.publish(c->amax, c->nonfinite);
  return OCTAVO_OK;
}

bool is_state_scaled(const octavo_quantize &c) {
  return c.out_scale_inv != nullptr && is_state_granularity(c.out_scale_inv->granularity);
}

bool is_block_scaled(const octavo_quantize &c) {
  return has_blocks(c.out_scale_inv) || has_blocks(c.out_t_scale_inv);
}

}  // namespace

octavo_status check_quantize(const Context &context, const octavo_quantize *c) {
  Check head(context, "quantize");
  if (head.call(c) && (c->flags & ~uint32_t{OCTAVO_QUANTIZE_KEEP_POSITIVE}) != 0) {
    head.fail(OCTAVO_UNSUPPORTED, "flags = 0x%x; expected bits of 0x%x", c->flags,
              OCTAVO_QUANTIZE_KEEP_POSITIVE);
  }
  if (!head.ok()) return head.status();
  if (is_state_scaled(*c)) return check_quantize_state(context, *c);
  if (is_block_scaled(*c)) return check_quantize_blocks(context, *c);
  return check_tensor_scaled(context, c);
}

octavo_status quantize(void *ctx, const octavo_quantize *c) {
  const Context &context = context_of(ctx);
  const octavo_status status = check_quantize(context, c);
  return status == OCTAVO_OK ? quantize_checked(context, *c) : status;
}

octavo_status quantize_checked(const Context &context, const octavo_quantize &c) {
  if (is_state_scaled(c)) return quantize_state(context, c);
  if (is_block_scaled(c)) return quantize_blocks(context, c);
  return quantize_tensor(context, &c);
}

}  // namespace octavo
