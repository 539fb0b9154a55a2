/* kernels/cpu/cast_rows.h: parts of a matrix for the loops of cast_loops.h.
 *
 * Values that are plain and need no factor are read in place, in their own dtype; others pass
 * through a buffer of fp32. A matrix without gaps is one long row, since no element knows its row.
 */
#pragma once

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/rows.h"

namespace octavo {

/* The input of quantize: fl32(element * factor). */
struct Source {
  const octavo_tensor &in;
  float factor; /* 1: none */

  bool is_direct() const { return factor == 1.0f && is_dtype(in.dtype, Dtypes::kPlain); }
};

inline Source source_of(const octavo_quantize &c) {
  return {*c.in, c.in_scale_inv == nullptr ? 1.0f : *c.in_scale_inv};
}

/* Calls body(first, count, dtype, values) for parts of the `count` elements from (row, col) on. A
 * part ends at a multiple of kSegment from the first element, or there are no parts. */
template <typename Body>
void for_source(const Context &context, const Source &source, int64_t row, int64_t col,
                int64_t count, Body &&body) {
  if (source.is_direct()) {
    return body(int64_t{0}, count, source.in.dtype,
                static_cast<const void *>(element(source.in, row, col)));
  }
  float buffer[kSegment];
  for (int64_t first = 0; first < count; first += kSegment) {
    const int64_t length = count - first < kSegment ? count - first : kSegment;
    load_values(context, source.in, row, col + first, length, source.factor, buffer);
    body(first, length, uint32_t{OCTAVO_F32}, static_cast<const void *>(buffer));
  }
}

/* OCTAVO_QUANTIZE_KEEP_POSITIVE for the codes of `count` elements from (row, col) on. */
void keep_positive_part(const Context &context, const Source &source, int64_t row, int64_t col,
                        int64_t count, uint32_t dtype, void *codes);

/* What the `count` elements from (row, col) on are. */
inline ValueStats measure_part(const Context &context, const Source &source, int64_t row,
                               int64_t col, int64_t count) {
  ValueStats stats;
  for_source(context, source, row, col, count,
             [&](int64_t, int64_t length, uint32_t dtype, const void *values) {
               merge(&stats, context.level->casts.measure(dtype, values, length));
             });
  return stats;
}

/* Whether a call that reads and writes so many bytes gains by writing past the caches: what it
 * wrote first would be gone from the last-level cache when somebody reads it. */
bool goes_past_caches(int64_t bytes);

inline int64_t tensor_bytes(const octavo_tensor &t) {
  return t.rows * t.cols * dtype_bytes(t.dtype);
}

/* What a call of quantize writes. */
inline int64_t output_bytes(const octavo_quantize &c) {
  return (c.out == nullptr ? 0 : tensor_bytes(*c.out)) +
         (c.out_t == nullptr ? 0 : tensor_bytes(*c.out_t));
}

constexpr int64_t kRun = 16384; /* elements that a thread takes at once */

/* Walks the runs of a rows x cols matrix on the host's threads. per_range(for_each_run) is called
 * once per range; for_each_run(body) in it calls body(row, col, count) for its runs. */
template <typename PerRange>
octavo_status for_runs(const Context &context, int64_t rows, int64_t cols, PerRange &&per_range) {
  if (rows == 0 || cols == 0) return OCTAVO_OK;
  const int64_t per_row = divide_up(cols, kRun);
  const int64_t grain = divide_up(kGrainElements, cols < kRun ? cols : kRun);
  return context.for_ranges(rows * per_row, grain, [&](int64_t begin, int64_t end) {
    per_range([&](auto &&body) {
      for (int64_t run = begin; run < end; ++run) {
        const int64_t col = run % per_row * kRun;
        body(run / per_row, col, cols - col < kRun ? cols - col : kRun);
      }
    });
  });
}

/* What all elements are, on the host's threads. */
octavo_status measure_all(const Context &context, const Source &source, SharedStats *shared);

}  // namespace octavo
