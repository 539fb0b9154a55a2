/* kernels/cpu/level_history.h: the roll of delayed scaling's histories; included by level.cpp only.
 *
 * Several rows are taken at once, so that what is kept of a column is loaded and stored once for
 * all of them and the history itself is what moves through the cache.
 */
#pragma once

#include "kernels/cpu/level_tile.h"

namespace octavo {
namespace {

typedef int32_t Integers __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef int32_t IntegersInMemory
    __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(sizeof(int32_t)), may_alias));

/* kRows rows of kLanes columns; `next` is the row after them. */
template <int kRows>
inline void roll_lanes(float *rows, int64_t stride, const float *next, const int32_t *rolls,
                       float *largest, int32_t *has_nan) {
  Vector values[kRows + 1];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
    values[row] = *reinterpret_cast<const VectorInMemory *>(rows + row * stride);
  values[kRows] = *reinterpret_cast<const VectorInMemory *>(next);
  Vector high = *reinterpret_cast<const VectorInMemory *>(largest);
  Integers nan = *reinterpret_cast<const IntegersInMemory *>(has_nan);
  const Integers moves = *reinterpret_cast<const IntegersInMemory *>(rolls) != 0;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    high = values[row] > high ? values[row] : high;
    nan |= static_cast<Integers>(values[row] != values[row]);
    *reinterpret_cast<VectorInMemory *>(rows + row * stride) =
        moves ? values[row + 1] : values[row];
  }
  *reinterpret_cast<VectorInMemory *>(largest) = high;
  *reinterpret_cast<IntegersInMemory *>(has_nan) = nan;
}

/* The same for one column. */
inline void roll_column(float *rows, int64_t count, int64_t stride, float newest, bool moves,
                        float *largest, int32_t *has_nan) {
  for (int64_t row = 0; row < count; ++row) {
    const float value = rows[row * stride];
    *largest = value > *largest ? value : *largest;
    *has_nan |= value != value ? 1 : 0;
    if (moves) rows[row * stride] = row + 1 < count ? rows[(row + 1) * stride] : newest;
  }
}

void roll_history(float *rows, int64_t count, int64_t stride, const float *newest,
                  const int32_t *rolls, int64_t n, float *largest, int32_t *has_nan) {
  constexpr int kRows = 8;
  const int64_t whole = n / kLanes * kLanes;
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    float *at = rows + row * stride;
    const float *next = row + kRows < count ? at + kRows * stride : newest;
    for (int64_t i = 0; i < whole; i += kLanes)
      roll_lanes<kRows>(at + i, stride, next + i, rolls + i, largest + i, has_nan + i);
  }
  for (; row < count; ++row) {
    float *at = rows + row * stride;
    const float *next = row + 1 < count ? at + stride : newest;
    for (int64_t i = 0; i < whole; i += kLanes)
      roll_lanes<1>(at + i, stride, next + i, rolls + i, largest + i, has_nan + i);
  }
  for (int64_t i = whole; i < n; ++i)
    roll_column(rows + i, count, stride, newest[i], rolls[i] != 0, largest + i, has_nan + i);
}

}  // namespace
}  // namespace octavo
