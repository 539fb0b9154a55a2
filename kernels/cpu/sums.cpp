/* sum_quantized, sum_rows and sum_of_squares.
 *
 * How a sum is cut into parts depends on the shape only and the parts are added in order, so the
 * number of threads never shows: see kernels/format/sum_order.h for sums of plain values.
 */
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/float8.h"

namespace octavo {
namespace {

constexpr int64_t kCols = 512; /* columns whose sums stay in a cache together */

struct ColumnSums {
  double at[kCols];

  void add(const ColumnSums &other, int64_t count) {
    for (int64_t i = 0; i < count; ++i) at[i] += other.at[i];
  }
};

/* The sums of `count` columns from `col` on. */
void add_columns(const Context &context, const octavo_sum &c, float factor, int64_t col,
                 int64_t count, ColumnSums *total) {
  const int64_t rows = c.in->rows;
  for (int64_t segment = 0; segment < rows; segment += kSegmentRows) {
    const int64_t end = rows - segment < kSegmentRows ? rows : segment + kSegmentRows;
    ColumnSums of_segment = {};
    for (int64_t piece = segment; piece < end; piece += kPieceRows) {
      const int64_t last = end - piece < kPieceRows ? end : piece + kPieceRows;
      ColumnSums of_piece = {};
      for (int64_t row = piece; row < last; ++row) {
        float buffer[kCols];
        const float *values = row_values(context, *c.in, row, col, count, factor, buffer);
        context.level->updates.add_each(values, count, of_piece.at);
      }
      of_segment.add(of_piece, count);
    }
    total->add(of_segment, count);
  }
}

/* The sum of squares of one segment: `count` elements from this number on in the order of rows. */
double segment_squares(const Context &context, const octavo_tensor &in, float factor, int64_t first,
                       int64_t count) {
  static_assert(kSegment % kSquareSums == 0, "a buffer has the same element of every sum");
  const UpdateLoops &loops = context.level->updates;
  double sums[kSquareSums] = {};
  int64_t row = first / in.cols;
  int64_t col = first % in.cols;
  const bool is_ready = in.dtype == OCTAVO_F32 && factor == 1.0f && in.cols - col >= count;
  if (is_ready) {
    const auto *values = reinterpret_cast<const float *>(element(in, row, col));
    loops.add_squares(values, count, sums);
    /* The next segment is on its way while this one is put together. */
    for (int64_t i = 0; i < kSquareSums * 4; i += 16) __builtin_prefetch(values + count + i);
    return loops.add_halves(sums);
  }
  for (int64_t done = 0; done < count; done += kSegment) {
    const int64_t wanted = count - done < kSegment ? count - done : kSegment;
    float buffer[kSegment];
    for (int64_t at = 0; at < wanted;) {
      const int64_t left = in.cols - col < wanted - at ? in.cols - col : wanted - at;
      load_values(context, in, row, col, left, factor, buffer + at);
      at += left;
      col += left;
      if (col == in.cols) ++row, col = 0;
    }
    loops.add_squares(buffer, wanted, sums);
  }
  return loops.add_halves(sums);
}

}  // namespace

octavo_status sum_quantized(const Context &context, const octavo_sum_quantized &c) {
  const int64_t count = static_cast<int64_t>(c.count);
  std::atomic<int64_t> outside = 0;
  octavo_status status = for_segment_ranges(context, 1, count, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kSegment;
    const int64_t length = (end * kSegment < count ? end * kSegment : count) - first;
    const int64_t found = context.level->updates.sum_codes(
        c.dtype, static_cast<const uint8_t *>(c.codes) + first, c.shards, c.shard_stride, length,
        static_cast<uint8_t *>(c.out) + first);
    outside.fetch_add(found, std::memory_order_relaxed);
  });
  if (status != OCTAVO_OK) return status;
  const float count_as = c.count_as == 0.0f ? 1.0f : c.count_as;
  if (c.added != nullptr) accumulate_sum(c.added, static_cast<float>(count) * count_as);
  if (c.saturated != nullptr && outside > 0) {
    accumulate_sum(c.saturated, static_cast<float>(outside.load()) * count_as);
  }
  return OCTAVO_OK;
}

octavo_status sum_rows(const Context &context, const octavo_sum &c) {
  const float factor = scale_value(c.in_scale_inv);
  const int64_t cols = c.in->cols;
  const int64_t grain = divide_up(kGrainElements, (c.in->rows + 1) * kCols);
  return context.for_ranges(divide_up(cols, kCols), grain, [&](int64_t begin, int64_t end) {
    for (int64_t col = begin * kCols; col < end * kCols && col < cols; col += kCols) {
      const int64_t count = cols - col < kCols ? cols - col : kCols;
      ColumnSums total = {};
      add_columns(context, c, factor, col, count, &total);
      float *out = static_cast<float *>(c.out) + col;
      for (int64_t i = 0; i < count; ++i) {
        const float sum = static_cast<float>(total.at[i]);
        out[i] = c.accumulate != 0 ? out[i] + sum : sum;
      }
    }
  });
}

/* A thread has some of the sums over segments, each with all of its segments. */
octavo_status sum_of_squares(const Context &context, const octavo_sum &c) {
  const float factor = scale_value(c.in_scale_inv);
  const int64_t count = c.in->rows * c.in->cols;
  const octavo_tensor in = c.in->stride == c.in->cols ? as_row(*c.in) : *c.in;
  const int64_t segments = divide_up(count, kSquareSegment);
  double sums[kSquareSums] = {};
  const int64_t used = segments < kSquareSums ? segments : kSquareSums;
  constexpr int64_t kGrain = kGrainElements / kSquareSegment;
  octavo_status status = context.for_ranges(used, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t turn = 0; turn + begin < segments; turn += kSquareSums) {
      for (int64_t i = begin; i < end && turn + i < segments; ++i) {
        const int64_t first = (turn + i) * kSquareSegment;
        const int64_t length = count - first < kSquareSegment ? count - first : kSquareSegment;
        sums[i] += segment_squares(context, in, factor, first, length);
      }
    }
  });
  if (status != OCTAVO_OK) return status;
  accumulate_sum(static_cast<float *>(c.out), static_cast<float>(add_halves(sums)));
  return OCTAVO_OK;
}

}  // namespace octavo
