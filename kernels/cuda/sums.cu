/* sum_quantized, sum_rows and sum_of_squares.
 *
 * Each touches what its call names and nothing else: parts of sums are in the call's workspace, and
 * without one a single block, or one for some columns, does all of it.
 */
#include "kernels/cuda/device/sums.cuh"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/verbs.h"

namespace octavo::cuda {
namespace {

/* What a struct of an older plugin may not have. */
template <typename Call>
void *workspace_of(const Call &c) {
  return OCTAVO_HAS(&c, Call, workspace) ? c.workspace : nullptr;
}

int64_t square_segments(const octavo_tensor &t) {
  return divide_up(t.rows * t.cols, kSquareSegment);
}

/* `is_row`: packs may go from row to row. */
SumSource source_of(const octavo_sum &c, bool is_row) {
  const AnyTensor t = any_tensor(*c.in);
  const int64_t bytes = dtype_bytes(t.dtype);
  const int64_t access = bytes == 1 ? kPack : 16;
  const bool packs = is_row ? t.stride == t.cols : t.stride * bytes % access == 0;
  return {t.data,
          t.rows,
          t.cols,
          t.stride,
          c.in_scale_inv == nullptr ? nullptr : static_cast<const float *>(c.in_scale_inv->data),
          1.0 / static_cast<double>(t.cols),
          packs && is_aligned_to(static_cast<uintptr_t>(access), {t.data})};
}

}  // namespace

/* A count for each block of the largest grid. */
uint64_t sum_quantized_workspace(const Context &context) {
  return blocks_for(context, INT64_MAX) * sizeof(CodeCount);
}

/* Enough for both verbs: parts of columns, of which there are more than of squares. Affine in rows
 * and columns, with whole bytes for each row: two sizes give a plan its formula. */
uint64_t sum_workspace(const octavo_sum &c) {
  const auto rows = static_cast<uint64_t>(c.in->rows);
  const auto cols = static_cast<uint64_t>(c.in->cols);
  constexpr uint64_t kRows = kSegmentRows / sizeof(double);
  return rows * ((cols + kRows - 1) / kRows) + (cols + 1) * sizeof(double);
}

octavo_status sum_quantized(void *ctx, const octavo_sum_quantized *c) {
  return run_verb<check_sum_quantized>(ctx, "sum_quantized", c, [&](Launcher &l) {
    const auto count = static_cast<int64_t>(c->count);
    const CodeSum call = {
        c->codes,
        c->out,
        count,
        static_cast<int64_t>(c->shards),
        static_cast<int64_t>(c->shard_stride),
        is_aligned_to(16, {c->codes, c->out}) && (c->shards <= 1 || c->shard_stride % 16 == 0)};
    const CodeCounts counts = {static_cast<CodeCount *>(workspace_of(*c)),
                               c->count_as == 0.0f ? 1.0f : c->count_as, c->saturated, c->added};
    const unsigned most = blocks_for(l.context(), divide_up(count, kThreads * kCodes));
    const unsigned blocks = counts.is_wanted() && counts.outside == nullptr ? 1 : most;
    if (c->dtype == OCTAVO_E4M3FN) {
      l.run(dim3(blocks), dim3(kThreads), sum_quantized_kernel<E4m3>, call, counts, kMaxE4m3);
    } else {
      l.run(dim3(blocks), dim3(kThreads), sum_quantized_kernel<E5m2>, call, counts, kMaxE5m2);
    }
    if (counts.is_wanted() && blocks > 1)
      l.run(dim3(1), dim3(kWarp), count_outside_kernel, counts, static_cast<int>(blocks), count);
  });
}

octavo_status sum_rows(void *ctx, const octavo_sum *c) {
  return run_verb<check_sum_rows>(ctx, "sum_rows", c, [&](Launcher &l) {
    const int64_t cols = c->in->cols;
    if (cols == 0) return;
    const int64_t segments = divide_up(c->in->rows, kSegmentRows);
    auto *parts = segments > 1 ? static_cast<double *>(workspace_of(*c)) : nullptr;
    const ColumnSums to = {parts, static_cast<float *>(c->out), c->accumulate != 0};
    constexpr int64_t kMostHigh = 65535; /* of a grid */
    const int64_t high = parts == nullptr ? 1 : segments < kMostHigh ? segments : kMostHigh;
    const dim3 blocks(static_cast<unsigned>(divide_up(cols, kSumColumns)),
                      static_cast<unsigned>(high));
    with_any(c->in->dtype, [&](auto format) {
      l.run(blocks, dim3(kThreads), sum_rows_kernel<decltype(format)>, source_of(*c, false), to);
    });
    constexpr int kColumns = 64; /* of a block: few, so that some hundreds use many blocks */
    if (parts != nullptr)
      l.run(dim3(blocks_for(l.context(), divide_up(cols, kColumns))), dim3(kColumns),
            add_segments_kernel, to, segments, cols);
  });
}

octavo_status sum_of_squares(void *ctx, const octavo_sum *c) {
  return run_verb<check_sum_of_squares>(ctx, "sum_of_squares", c, [&](Launcher &l) {
    constexpr int64_t kFew = 4 * kWarps; /* one block is done before a second launch begins */
    const int64_t segments = square_segments(*c->in);
    auto *parts = segments > kFew ? static_cast<double *>(workspace_of(*c)) : nullptr;
    auto *out = static_cast<float *>(c->out);
    const unsigned blocks =
        parts == nullptr ? 1 : blocks_for(l.context(), divide_up(segments, kWarps));
    with_any(c->in->dtype, [&](auto format) {
      l.run(dim3(blocks), dim3(kThreads), squares_kernel<decltype(format)>, source_of(*c, true),
            parts, out);
    });
    if (parts != nullptr) l.run(dim3(1), dim3(kThreads), add_squares_kernel, parts, segments, out);
  });
}

}  // namespace octavo::cuda
