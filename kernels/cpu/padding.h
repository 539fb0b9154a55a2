/* kernels/cpu/padding.h: the part of an output that lies outside of its input.
 *
 * Padding is part of a result: a GEMM reads it, so it is written in every call.
 */
#ifndef OCTAVO_KERNELS_CPU_PADDING_H
#define OCTAVO_KERNELS_CPU_PADDING_H

#include <cstring>

#include "kernels/cpu/rows.h"

namespace octavo {

/* Zeroes everything outside of the first rows x cols elements; t may be null. */
inline void clear_padding(const octavo_tensor *t, int64_t rows, int64_t cols) {
  if (t == nullptr || t->cols == 0) return;
  for (int64_t row = 0; row < t->rows; ++row) {
    const int64_t first = row < rows ? cols : 0;
    std::memset(element(*t, row, first), 0,
                static_cast<size_t>((t->cols - first) * dtype_bytes(t->dtype)));
  }
}

}  // namespace octavo

#endif
