/* kernels/cpu/rows.h: walking a matrix in short segments of fp32 values on the stack.
 *
 * Segments are cut by the shape alone, never by the number of threads.
 */
#ifndef OCTAVO_KERNELS_CPU_ROWS_H
#define OCTAVO_KERNELS_CPU_ROWS_H

#include "kernels/cpu/check.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"

namespace octavo {

constexpr int64_t kSegment = 512;         /* elements; 2 KiB of fp32 stay in the first cache */
constexpr int64_t kGrainElements = 16384; /* less is not worth a thread */

inline int64_t divide_up(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

inline char *element(const octavo_tensor &t, int64_t row, int64_t col) {
  return static_cast<char *>(t.data) + (row * t.stride + col) * dtype_bytes(t.dtype);
}

/* No gaps between rows; a single row's stride says nothing. */
inline bool is_dense(const octavo_tensor &t) {
  return t.stride == t.cols || t.rows <= 1;
}

/* A dense matrix as one row. */
inline octavo_tensor as_row(const octavo_tensor &t) {
  const int64_t count = t.rows * t.cols;
  return {t.data, 1, count, count, t.dtype, 0};
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

/* The largest finite value of any dtype that kernels take. */
inline float largest_of(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_BF16: return kMaxBf16;
    case OCTAVO_F16: return kMaxF16;
    case OCTAVO_E4M3FN: return kMaxE4m3;
    case OCTAVO_E5M2: return kMaxE5m2;
    default: return kFloatMax;
  }
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

}  // namespace octavo

#endif
