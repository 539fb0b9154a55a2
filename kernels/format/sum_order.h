/* kernels/format/sum_order.h: in which order plain values are added, the same on every device.
 *
 * Sums are fp64 and rounded to fp32 once. Their parts are cut by the shape alone: neither the
 * number of threads nor the room for parts shows.
 *
 * A column: rows in ascending order in pieces of 32; pieces in segments of 256 rows; segments. Each
 * of the three levels begins at 0.
 *
 * Squares: the elements in the order of rows, without what is between rows, in segments of 4096. A
 * segment is 256 sums, of the elements with equal remainders, added by halves. The segments' sums
 * are added in the same way: 256 sums, of the segments with equal remainders, by halves.
 */
#pragma once

#include <cstdint>

#include "kernels/format/bits.h"

namespace octavo {

constexpr int64_t kPieceRows = 32;
constexpr int64_t kSegmentRows = 256;
constexpr int64_t kSquareSegment = 4096;
constexpr int kSquareSums = 256;

/* sums[0] becomes the total: 128 and 128, 64 and 64, down to 1 and 1. */
OCTAVO_HOST_DEVICE static inline double add_halves(double *sums) {
  for (int half = kSquareSums / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[half + i];
  }
  return sums[0];
}

}  // namespace octavo
