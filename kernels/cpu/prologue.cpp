/* prologue: LayerNorm, RMSNorm, GELU and SwiGLU into a plain tensor.
 *
 * Rows are independent. A row of a norm is read three times (sum, squares, result), the second and
 * third time from the cache; the squares are of distances from the mean, since the difference of
 * two large sums would lose the variance.
 */
#include "kernels/check/calls.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/activation.h"

namespace octavo {
namespace {

static_assert(kSegment % kSumParts == 0, "a sum must not depend on where segments end");

/* Calls body(col, count) for the segments of one row. */
template <typename Body>
void for_row_segments(int64_t cols, Body &&body) {
  for (int64_t col = 0; col < cols; col += kSegment) {
    body(col, cols - col < kSegment ? cols - col : kSegment);
  }
}

void norm_row(const Context &context, const octavo_prologue &p, int64_t row,
              const octavo_tensor &out, int64_t out_row) {
  const PrologueLoops &loops = context.level->prologue;
  const auto count_of_row = static_cast<float>(p.in->cols);
  /* A row that is not too long is converted once for all three readings. */
  constexpr int64_t kKeptRow = 4096;
  float kept[kKeptRow];
  octavo_tensor in = *p.in;
  if (in.dtype != OCTAVO_F32 && in.cols <= kKeptRow) {
    load_values(context, in, row, 0, in.cols, 1.0f, kept);
    in = {kept, 1, in.cols, 0, OCTAVO_F32, 0}; /* one row, whatever its index */
  }
  float buffer[kSegment];
  float mean = 0.0f;
  if (p.op == OCTAVO_PROLOGUE_LAYER_NORM) {
    float parts[kSumParts] = {};
    for_row_segments(in.cols, [&](int64_t col, int64_t count) {
      loops.add_up(row_values(context, in, row, col, count, 1.0f, buffer), count, parts);
    });
    mean = with_one_nan(total(parts) / count_of_row);
  }
  float parts[kSumParts] = {};
  for_row_segments(in.cols, [&](int64_t col, int64_t count) {
    loops.add_up_squares(row_values(context, in, row, col, count, 1.0f, buffer), count, mean,
                         parts);
  });
  const float variance = total(parts) / count_of_row;
  const float rstd = with_one_nan(1.0f / __builtin_sqrtf(variance + p.eps));
  if (p.mean != nullptr) p.mean[row] = mean;
  if (p.rstd != nullptr) p.rstd[row] = rstd;
  for_row_segments(in.cols, [&](int64_t col, int64_t count) {
    float gammas[kSegment];
    float betas[kSegment];
    float normal[kSegment];
    const float *values = row_values(context, in, row, col, count, 1.0f, buffer);
    const float *gamma = row_values(context, *p.gamma, 0, col, count, 1.0f, gammas);
    const float *beta =
        p.beta == nullptr ? nullptr : row_values(context, *p.beta, 0, col, count, 1.0f, betas);
    loops.normalize(values, count, mean, rstd, gamma, beta, normal);
    context.level->store(out.dtype, normal, count, element(out, out_row, col));
  });
}

void activation_row(const Context &context, const octavo_prologue &p, int64_t row,
                    const octavo_tensor &out, int64_t out_row) {
  for_row_segments(out.cols, [&](int64_t col, int64_t count) {
    float buffer[kSegment];
    float ups[kSegment];
    float active[kSegment];
    const float *values = row_values(context, *p.in, row, col, count, 1.0f, buffer);
    const float *up = p.op == OCTAVO_PROLOGUE_SWIGLU
                          ? row_values(context, *p.in, row, out.cols + col, count, 1.0f, ups)
                          : nullptr;
    context.level->prologue.activate(p.op, values, up, count, active);
    context.level->store(out.dtype, active, count, element(out, out_row, col));
  });
}

}  // namespace

void prologue_rows(const Context &context, const octavo_prologue &p, int64_t begin, int64_t end,
                   int64_t first, const octavo_tensor &out) {
  for (int64_t row = begin; row < end; ++row) {
    if (is_norm(p.op)) {
      norm_row(context, p, row, out, row - first);
    } else {
      activation_row(context, p, row, out, row - first);
    }
  }
}

octavo_status prologue_all(const Context &context, const octavo_prologue &p,
                           const octavo_tensor &out) {
  if (out.rows == 0 || out.cols == 0) return OCTAVO_OK;
  return context.for_ranges(
      out.rows, divide_up(kGrainElements, out.cols),
      [&](int64_t begin, int64_t end) { prologue_rows(context, p, begin, end, 0, out); });
}

octavo_status prologue(const Context &context, const octavo_prologue_call &c) {
  return prologue_all(context, *c.prologue, *c.out);
}

}  // namespace octavo
