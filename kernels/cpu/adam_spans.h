/* kernels/cpu/adam_spans.h: the segments of an item as long runs of memory. */
#pragma once

#include "kernels/cpu/adam_item.h"

namespace octavo {

/* Calls body(span) for long runs of the segments [begin, end), the last ones first where asked. */
template <typename Body>
void for_spans(const Step &s, int64_t begin, int64_t end, bool goes_back, Body &&body) {
  constexpr int64_t kRun = 64; /* segments: long enough for what a call sets up */
  const int64_t cols = s.gradient.cols;
  const int64_t per_row = divide_up(cols, kSegment);
  const auto call = [&](int64_t first, int64_t last) {
    const int64_t row = first / per_row;
    const int64_t col = first % per_row * kSegment;
    const int64_t left = cols - col;
    const int64_t whole = (last - first) * kSegment;
    AdamSpan span = {element(s.gradient, row, col), {}, {}, whole < left ? whole : left};
    for (int i = 0; i < kAdamTensors; ++i) {
      const Target &t = s.targets[i];
      span.tensors[i] = element(t.tensor, row, col);
      /* Tensors with blocks are one row. */
      if (t.granularity == OCTAVO_FLAT_256) span.block_scales[i] = t.scale_inv + col / kAdamBlock;
    }
    body(span);
  };
  if (goes_back) {
    for (int64_t last = end; last > begin;) {
      const int64_t row_begin = (last - 1) / per_row * per_row;
      int64_t first = last - kRun > row_begin ? last - kRun : row_begin;
      if (first < begin) first = begin;
      call(first, last);
      last = first;
    }
    return;
  }
  for (int64_t first = begin; first < end;) {
    const int64_t row_end = (first / per_row + 1) * per_row;
    int64_t last = first + kRun < row_end ? first + kRun : row_end;
    if (last > end) last = end;
    call(first, last);
    first = last;
  }
}

}  // namespace octavo
