/* quantize with block granularities: every block of the input has the amax of its own elements.
 *
 * The input is cut into tiles of 128 x 128, in which all blocks of both granularities end; so one
 * thread sees all of a block, and no scale has two writers. A tile is read twice: once for the amax
 * of its blocks, once for the casts, when it is in cache.
 */
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/padding.h"
#include "kernels/cpu/state_blocks.h"
#include "kernels/cpu/verbs.h"
#include "kernels/format/scale_rules.h"

namespace octavo {
namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kMaxBlocks = kTile / kMxBlock; /* along one side of a tile */

struct Tile {
  int64_t row;
  int64_t col;
  int64_t rows;
  int64_t cols;
};

/* One output and its scales. */
struct Output {
  const octavo_tensor *codes; /* null: none */
  const octavo_scale *scales;
};

/* The call, and what follows from it for every tile. */
struct Plan {
  const octavo_quantize &c;
  Output out;
  Output out_t;
  float factor;
  float largest;  /* of the input's dtype */
  int64_t length; /* of a block, along a row */
  uint32_t dtype; /* of the codes */
};

/* The amax of the blocks of one tile, as bits. */
struct TileAmax {
  int32_t rows[kTile][kMaxBlocks] = {};         /* blocks along rows */
  int32_t cols[kMaxBlocks][kTile] = {};         /* blocks along columns, those of out_t */
  int32_t squares[kMaxBlocks][kMaxBlocks] = {}; /* square blocks */
};

/* What elements of one tile are multiplied by before their cast. */
struct TileScales {
  float out[kTile][kMaxBlocks];   /* of a row, square blocks: of a row of blocks */
  float out_t[kMaxBlocks][kTile]; /* blocks along columns */
  float square_t[kMaxBlocks][kMaxBlocks];
};

bool is_square(const octavo_scale *s) {
  return block_rows(s->granularity) > 1;
}

const float *tile_row(const Context &context, const Plan &plan, const Tile &t, int64_t row,
                      float *buffer) {
  return row_values(context, *plan.c.in, t.row + row, t.col, t.cols, plan.factor, buffer);
}

/* Calls body(start, count, block) for the blocks along a row of `cols` elements. */
template <typename Body>
void for_row_blocks(int64_t cols, int64_t length, Body &&body) {
  for (int64_t start = 0, block = 0; start < cols; start += length, ++block) {
    body(start, cols - start < length ? cols - start : length, block);
  }
}

ValueStats measure_tile(const Context &context, const Plan &plan, const Tile &t, TileAmax *amax) {
  ValueStats stats;
  float buffer[kTile];
  for (int64_t row = 0; row < t.rows; ++row) {
    const float *values = tile_row(context, plan, t, row, buffer);
    const int64_t band = row / plan.length;
    for_row_blocks(t.cols, plan.length, [&](int64_t start, int64_t count, int64_t block) {
      const ValueStats found = context.level->measure(values + start, count);
      amax->rows[row][block] = found.amax_bits;
      int32_t *square = &amax->squares[band][block];
      if (found.amax_bits > *square) *square = found.amax_bits;
      merge(&stats, found);
    });
    if (plan.out_t.codes != nullptr && !is_square(plan.out_t.scales)) {
      context.level->measure_each(values, t.cols, amax->cols[band]);
    }
  }
  return stats;
}

/* Stores the scale_inv of one block at (row, col) of the matrix of scales; gives its scale. */
float store_scale(const Plan &plan, const octavo_scale &s, int64_t row, int64_t col,
                  int32_t amax_bits) {
  const BlockScale scale =
      block_scale(plan.c.rule, bits_float(amax_bits), plan.c.format_max, plan.c.eps, plan.largest);
  char *to = static_cast<char *>(s.data) + (row * s.stride + col) * dtype_bytes(s.dtype);
  if (s.dtype == OCTAVO_E8M0FNU) {
    *reinterpret_cast<uint8_t *>(to) = scale.code;
  } else {
    *reinterpret_cast<float *>(to) = scale.scale_inv;
  }
  return scale.scale;
}

void store_scales(const Plan &plan, const Tile &t, const TileAmax &amax, TileScales *scales) {
  const int64_t row_blocks = divide_up(t.rows, plan.length);
  const int64_t col_blocks = divide_up(t.cols, plan.length);
  const int64_t first_row = t.row / plan.length;
  const int64_t first_col = t.col / plan.length;
  if (plan.out.codes != nullptr) {
    const bool square = is_square(plan.out.scales);
    const int64_t rows = square ? row_blocks : t.rows;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t block = 0; block < col_blocks; ++block) {
        scales->out[row][block] = store_scale(
            plan, *plan.out.scales, square ? first_row + row : t.row + row, first_col + block,
            square ? amax.squares[row][block] : amax.rows[row][block]);
      }
    }
  }
  if (plan.out_t.codes == nullptr) return;
  const bool square = is_square(plan.out_t.scales);
  for (int64_t band = 0; band < row_blocks; ++band) {
    for (int64_t col = 0; col < (square ? col_blocks : t.cols); ++col) {
      if (square) {
        scales->square_t[band][col] = store_scale(plan, *plan.out_t.scales, first_col + col,
                                                  first_row + band, amax.squares[band][col]);
      } else {
        scales->out_t[band][col] = store_scale(plan, *plan.out_t.scales, t.col + col,
                                               first_row + band, amax.cols[band][col]);
      }
    }
  }
}

/* Codes of one row whose blocks lie along it. */
void cast_blocks(const Context &context, const Plan &plan, const float *values, int64_t cols,
                 const float *scales, uint8_t *codes) {
  for_row_blocks(cols, plan.length, [&](int64_t start, int64_t count, int64_t block) {
    context.level->cast(plan.dtype, values + start, count, scales[block], codes + start);
  });
}

void cast_tile(const Context &context, const Plan &plan, const Tile &t, const TileScales &scales) {
  float buffer[kTile];
  float scaled[kTile];
  uint8_t codes[kTile * kTile]; /* those of out_t, not yet transposed */
  const bool keeps_positive = (plan.c.flags & OCTAVO_QUANTIZE_KEEP_POSITIVE) != 0;
  for (int64_t row = 0; row < t.rows; ++row) {
    const float *values = tile_row(context, plan, t, row, buffer);
    const int64_t band = row / plan.length;
    if (plan.out.codes != nullptr) {
      auto *to = reinterpret_cast<uint8_t *>(element(*plan.out.codes, t.row + row, t.col));
      cast_blocks(context, plan, values, t.cols,
                  scales.out[is_square(plan.out.scales) ? band : row], to);
      if (keeps_positive) keep_positive(plan.dtype, values, t.cols, to);
    }
    if (plan.out_t.codes == nullptr) continue;
    uint8_t *to = codes + row * kTile;
    if (is_square(plan.out_t.scales)) {
      cast_blocks(context, plan, values, t.cols, scales.square_t[band], to);
    } else {
      context.level->multiply_each(values, scales.out_t[band], t.cols, scaled);
      context.level->cast(plan.dtype, scaled, t.cols, 1.0f, to);
    }
    if (keeps_positive) keep_positive(plan.dtype, values, t.cols, to);
  }
  if (plan.out_t.codes == nullptr) return;
  for (int64_t col = 0; col < t.cols; ++col) {
    auto *to = reinterpret_cast<uint8_t *>(element(*plan.out_t.codes, t.col + col, t.row));
    for (int64_t row = 0; row < t.rows; ++row) to[row] = codes[row * kTile + col];
  }
}

/* The scales of blocks that hold padding only; rows x cols elements are no padding. */
void store_padding_scales(const Plan &plan, const Output &output, int64_t rows, int64_t cols) {
  if (output.codes == nullptr) return;
  const octavo_scale &s = *output.scales;
  const int64_t used_rows = divide_up(rows, block_rows(s.granularity));
  const int64_t used_cols = divide_up(cols, plan.length);
  const int64_t all_rows = divide_up(output.codes->rows, block_rows(s.granularity));
  const int64_t all_cols = divide_up(output.codes->cols, plan.length);
  for (int64_t row = 0; row < all_rows; ++row) {
    for (int64_t col = row < used_rows ? used_cols : 0; col < all_cols; ++col) {
      store_scale(plan, s, row, col, 0);
    }
  }
}

}  // namespace

octavo_status quantize_blocks(const Context &context, const octavo_quantize &c) {
  octavo_status status = check_quantize_blocks(context, c);
  if (status != OCTAVO_OK) return status;

  const octavo_scale *scales = c.out != nullptr ? c.out_scale_inv : c.out_t_scale_inv;
  const Plan plan = {c,
                     {c.out, c.out_scale_inv},
                     {c.out_t, c.out_t_scale_inv},
                     c.in_scale_inv == nullptr ? 1.0f : *c.in_scale_inv,
                     largest_of(c.in->dtype),
                     block_cols(scales->granularity),
                     c.out != nullptr ? c.out->dtype : c.out_t->dtype};
  const int64_t rows = c.in->rows;
  const int64_t cols = c.in->cols;
  const int64_t per_row = divide_up(cols, kTile);
  SharedStats shared;
  status = context.for_ranges(divide_up(rows, kTile) * per_row, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      Tile t = {index / per_row * kTile, index % per_row * kTile, kTile, kTile};
      if (rows - t.row < t.rows) t.rows = rows - t.row;
      if (cols - t.col < t.cols) t.cols = cols - t.col;
      TileAmax amax;
      TileScales multipliers;
      shared.add(measure_tile(context, plan, t, &amax));
      store_scales(plan, t, amax, &multipliers);
      cast_tile(context, plan, t, multipliers);
    }
  });
  if (status != OCTAVO_OK) return status;
  store_padding_scales(plan, plan.out, rows, cols);
  store_padding_scales(plan, plan.out_t, cols, rows);
  clear_padding(c.out, rows, cols);
  clear_padding(c.out_t, cols, rows);
  shared.publish(c.amax, c.nonfinite);
  return OCTAVO_OK;
}

}  // namespace octavo
