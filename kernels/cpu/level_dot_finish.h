/* kernels/cpu/level_dot_finish.h: from the sums of a tile to the output; included by level.cpp
 * only.
 *
 * The conversions are those of kernels/format/float16.h, in integers: the conversion instructions
 * treat subnormals as 0 or keep other bits of a NaN.
 */
#pragma once

#include "kernels/cpu/level_rows.h"

namespace octavo {
namespace {

/* in -> out of a plain dtype, one row of a tile. */
template <uint32_t kDtype>
struct PlainRow;

template <>
struct PlainRow<OCTAVO_F32> {
  using Type = float;
  static float encode(float value) { return value; }
  static float decode(float value) { return value; }
};

template <>
struct PlainRow<OCTAVO_BF16> {
  using Type = uint16_t;
  static uint16_t encode(float value) { return encode_bf16(value); }
  static float decode(uint16_t value) { return decode_bf16(value); }
};

template <>
struct PlainRow<OCTAVO_F16> {
  using Type = uint16_t;
  static uint16_t encode(float value) { return encode_f16(value); }
  static float decode(uint16_t value) { return decode_f16(value); }
};

/* One row of `cols` sums; inlined with a constant cols, so that it is vector code. */
template <uint32_t kDtype>
__attribute__((always_inline)) inline void finish_row(const float *sums, int cols, int row,
                                                      const DotFinish &f) {
  using Row = PlainRow<kDtype>;
  using Type = typename Row::Type;
  auto *out = reinterpret_cast<Type *>(f.out + row * f.stride);
  float values[kDotCols];
  for (int i = 0; i < cols; ++i) values[i] = sums[row * kDotCols + i];
  if (f.row_scales != nullptr) {
    const float row_scale = f.row_scales[row];
    for (int i = 0; i < cols; ++i) values[i] *= row_scale * f.col_scales[i];
  }
  if (f.bias != nullptr && f.bias_after) {
    for (int i = 0; i < cols; ++i) {
      const float sum = Row::decode(Row::encode(values[i])) + f.bias[i];
      values[i] = Row::decode(Row::encode(sum));
    }
  } else if (f.bias != nullptr) {
    for (int i = 0; i < cols; ++i) values[i] += f.bias[i];
  }
  if (f.accumulates) {
    for (int i = 0; i < cols; ++i) values[i] = Row::decode(out[i]) + values[i];
  }
  for (int i = 0; i < cols; ++i) out[i] = Row::encode(values[i]);
}

template <uint32_t kDtype>
void finish_rows(const float *sums, int rows, int cols, const DotFinish &f) {
  for (int row = 0; row < rows; ++row) {
    if (cols == kDotCols) {
      finish_row<kDtype>(sums, kDotCols, row, f);
    } else {
      finish_row<kDtype>(sums, cols, row, f);
    }
  }
}

void finish_dot_tile(const float *sums, int rows, int cols, const DotFinish &f) {
  switch (f.dtype) {
    case OCTAVO_F32: return finish_rows<OCTAVO_F32>(sums, rows, cols, f);
    case OCTAVO_BF16: return finish_rows<OCTAVO_BF16>(sums, rows, cols, f);
    default: return finish_rows<OCTAVO_F16>(sums, rows, cols, f);
  }
}

}  // namespace
}  // namespace octavo
