/* kernels/cpu/rows.h: walking a matrix in short segments of fp32 values on the stack.
 *
 * Segments are cut by the shape alone, never by the number of threads.
 */
#pragma once

#include <cstring>

#include "kernels/check/granularity.h"
#include "kernels/cpu/context.h"

namespace octavo {

constexpr int64_t kSegment = 512;         /* elements; 2 KiB of fp32 stay in the first cache */
constexpr int64_t kGrainElements = 16384; /* less is not worth a thread */

/* The multiplier of a checked scale; 1 when it is null. */
inline float scale_value(const octavo_scale *s) {
  return s == nullptr ? 1.0f : *static_cast<const float *>(s->data);
}

/* fl32(value * factor) of `count` elements from (row, col) on, in `buffer`. */
inline void load_values(const Context &context, const octavo_tensor &t, int64_t row, int64_t col,
                        int64_t count, float factor, float *buffer) {
  context.level->load(t.dtype, element(t, row, col), count, buffer);
  if (factor != 1.0f) context.level->multiply(buffer, count, factor);
}

/* The same, in place where nothing needs converting; else in `buffer`. */
inline const float *row_values(const Context &context, const octavo_tensor &t, int64_t row,
                               int64_t col, int64_t count, float factor, float *buffer) {
  if (t.dtype == OCTAVO_F32 && factor == 1.0f) {
    return reinterpret_cast<const float *>(element(t, row, col));
  }
  load_values(context, t, row, col, count, factor, buffer);
  return buffer;
}

/* Writes `values` to a plain tensor, added to what it holds when `accumulates`. */
inline void store_plain(const Context &context, const octavo_tensor &t, int64_t row, int64_t col,
                        int64_t count, bool accumulates, float *values) {
  char *out = element(t, row, col);
  if (accumulates) {
    float old[kSegment];
    context.level->load(t.dtype, out, count, old);
    for (int64_t i = 0; i < count; ++i) values[i] = old[i] + values[i];
  }
  context.level->store(t.dtype, values, count, out);
}

/* Calls body(row, col, count) for every segment in [begin, end) of the matrix's segments. */
template <typename Body>
void for_segments(int64_t cols, int64_t begin, int64_t end, Body &&body) {
  const int64_t per_row = divide_up(cols, kSegment);
  for (int64_t segment = begin; segment < end; ++segment) {
    const int64_t row = segment / per_row;
    const int64_t col = segment % per_row * kSegment;
    body(row, col, cols - col < kSegment ? cols - col : kSegment);
  }
}

/* The same over all segments of a rows x cols matrix, on the host's threads. per_range(begin, end)
 * is called once per range and walks it with for_segments. */
template <typename PerRange>
octavo_status for_segment_ranges(const Context &context, int64_t rows, int64_t cols,
                                 PerRange &&per_range) {
  if (rows == 0 || cols == 0) return OCTAVO_OK;
  const int64_t length = cols < kSegment ? cols : kSegment;
  return context.for_ranges(rows * divide_up(cols, kSegment), divide_up(kGrainElements, length),
                            per_range);
}

/* Zeroes everything outside of the first rows x cols elements; t may be null. Padding is part of a
 * result: a GEMM reads it, so it is written in every call. */
inline void clear_padding(const octavo_tensor *t, int64_t rows, int64_t cols) {
  if (t == nullptr || t->cols == 0) return;
  for (int64_t row = 0; row < t->rows; ++row) {
    const int64_t first = row < rows ? cols : 0;
    std::memset(element(*t, row, first), 0,
                static_cast<size_t>((t->cols - first) * dtype_bytes(t->dtype)));
  }
}

}  // namespace octavo
