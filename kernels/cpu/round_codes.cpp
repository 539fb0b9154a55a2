/* round_codes: codes that were rounded to nearest even, rounded again at random.
 *
 * In bands of 32 rows of the values, in which no block of scales ends: each column of a band has
 * one scale in transposed codes, whatever their granularity.
 */
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/rounding.h"

namespace octavo {
namespace {

constexpr int64_t kBand = kMxBlock;

/* The multiplier of a code. */
float scale_inv_of(const octavo_scale &s, int64_t row, int64_t col) {
  if (is_row_scaled(&s)) return row_scale_inv(s, row);
  if (!is_block_granularity(s.granularity)) return scale_value(&s);
  return scale_inv_at(s, scale_row(s, row), col / block_cols(s.granularity));
}

/* Those of `count` codes of a row. */
void load_scales(const octavo_scale &s, int64_t row, int64_t col, int64_t count, float *scales) {
  const int64_t length = is_block_granularity(s.granularity) ? block_cols(s.granularity) : count;
  for (int64_t first = 0; first < count; first += length) {
    const float scale_inv = scale_inv_of(s, row, col + first);
    const int64_t end = count - first < length ? count : first + length;
    for (int64_t i = first; i < end; ++i) scales[i] = scale_inv;
  }
}

struct Rounding {
  const octavo_round_codes &call;
  RandomKey key;

  /* Of a code. Padding does not count, so it does not show in results. */
  uint64_t place(int64_t row, int64_t col) const {
    const int64_t cols = call.is_transposed != 0 ? call.in->rows : call.in->cols;
    return static_cast<uint64_t>(row * cols + col);
  }
};

/* Values from (row, col) of `in` on, to codes of the same place. */
void round_row(const Context &context, const Rounding &r, int64_t row, int64_t col, int64_t count) {
  const octavo_tensor &codes = *r.call.codes;
  float buffer[kSegment];
  float scales[kSegment];
  const float *values = row_values(context, *r.call.in, row, col, count, 1.0f, buffer);
  load_scales(*r.call.scale_inv, row, col, count, scales);
  context.level->updates.rounding.round_again(
      codes.dtype, values, scales, count, r.key, r.place(row, col), 1,
      reinterpret_cast<uint8_t *>(element(codes, row, col)));
}

/* The same for `rows` rows of a band, to codes that are transposed. */
void round_columns(const Context &context, const Rounding &r, int64_t row, int64_t col,
                   int64_t rows, int64_t count) {
  const octavo_tensor &codes = *r.call.codes;
  float buffer[kSegment];
  float scales[kSegment];
  uint8_t band[kBand * kSegment];
  for (int64_t i = 0; i < count; ++i) scales[i] = scale_inv_of(*r.call.scale_inv, col + i, row);
  for (int64_t k = 0; k < rows; ++k) {
    const float *values = row_values(context, *r.call.in, row + k, col, count, 1.0f, buffer);
    context.level->updates.rounding.round_again(codes.dtype, values, scales, count, r.key,
                                                r.place(col, row + k), r.place(1, 0),
                                                band + k * kSegment);
  }
  context.level->casts.transpose(band, kSegment, rows, count,
                                 reinterpret_cast<uint8_t *>(element(codes, col, row)),
                                 codes.stride, false);
}

}  // namespace

octavo_status round_codes(const Context &context, const octavo_round_codes &c) {
  const bool turns = c.is_transposed != 0;
  const Rounding r = {c, random_key(c.key, step_of(c.count), turns ? 1 : 0)};
  const int64_t rows = c.in->rows, cols = c.in->cols;
  if (rows == 0 || cols == 0) return OCTAVO_OK;
  const int64_t bands = divide_up(rows, kBand);
  return context.for_ranges(
      bands, divide_up(kGrainElements, kBand * cols), [&](int64_t begin, int64_t end) {
        for_segments(cols, begin * divide_up(cols, kSegment), end * divide_up(cols, kSegment),
                     [&](int64_t band, int64_t col, int64_t count) {
                       const int64_t first = band * kBand;
                       const int64_t height = rows - first < kBand ? rows - first : kBand;
                       if (turns) return round_columns(context, r, first, col, height, count);
                       for (int64_t k = 0; k < height; ++k)
                         round_row(context, r, first + k, col, count);
                     });
      });
}

}  // namespace octavo
