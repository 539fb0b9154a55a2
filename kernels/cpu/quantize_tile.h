/* kernels/cpu/quantize_tile.h: the parts of a matrix in which quantize walks when it writes a
 * transposed output, too.
 *
 * A band is 128 rows high, because a transposed column then fills whole cache lines, two of them in
 * a row: shorter ones cost memory twice. All blocks of 128 and of 32 end with a band. Rows of a
 * band are read and written in their whole width, since short pieces of far rows are several times
 * slower; only what is then in a cache is taken in tiles, whose codes fit on the stack.
 */
#pragma once

#include "kernels/cpu/cast_rows.h"

namespace octavo {

constexpr int64_t kBandRows = 128;
constexpr int64_t kBandCols = 16384; /* at most */
constexpr int64_t kTileCols = kSegment;
/* With fewer bands threads would have nothing to do: then bands are cut into shorter ones. */
constexpr int64_t kFewBands = 16;

/* A band, or a tile of one. */
struct Tile {
  int64_t row;
  int64_t col;
  int64_t rows;
  int64_t cols;
};

/* The width of bands follows from the shape alone; it is a multiple of kTileCols. */
inline int64_t band_cols(int64_t rows, int64_t cols) {
  const int64_t parts = divide_up(kFewBands, divide_up(rows, kBandRows));
  const int64_t width = divide_up(divide_up(cols, parts), kTileCols) * kTileCols;
  return width < kBandCols ? width : kBandCols;
}

/* Calls body(band) for all bands of t, on the host's threads. */
template <typename Body>
octavo_status for_bands(const Context &context, const octavo_tensor &t, Body &&body) {
  if (t.rows == 0 || t.cols == 0) return OCTAVO_OK;
  const int64_t width = band_cols(t.rows, t.cols);
  const int64_t per_row = divide_up(t.cols, width);
  const int64_t count = divide_up(t.rows, kBandRows) * per_row;
  return context.for_ranges(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      Tile band = {index / per_row * kBandRows, index % per_row * width, kBandRows, width};
      if (t.rows - band.row < band.rows) band.rows = t.rows - band.row;
      if (t.cols - band.col < band.cols) band.cols = t.cols - band.col;
      body(band);
    }
  });
}

/* Calls body(tile) for the tiles of a band; width: at most kTileCols. */
template <typename Body>
void for_tiles(const Tile &band, int64_t width, Body &&body) {
  for (int64_t first = 0; first < band.cols; first += width) {
    const int64_t rest = band.cols - first;
    body(Tile{band.row, band.col + first, band.rows, rest < width ? rest : width});
  }
}

/* The part of out_t that belongs to a tile or a band, from its codes in the order of rows; stride:
 * codes between rows. */
inline void turn_codes(const Context &context, const void *codes, int64_t stride, const Tile &t,
                       const octavo_tensor &out_t, bool past_caches) {
  char *to = element(out_t, t.col, t.row);
  if (dtype_bytes(out_t.dtype) == 1) {
    return context.level->casts.transpose(static_cast<const uint8_t *>(codes), stride, t.rows,
                                          t.cols, reinterpret_cast<uint8_t *>(to), out_t.stride,
                                          past_caches);
  }
  const auto *from = static_cast<const uint16_t *>(codes);
  auto *halves = reinterpret_cast<uint16_t *>(to);
  for (int64_t col = 0; col < t.cols; ++col) {
    for (int64_t row = 0; row < t.rows; ++row) {
      halves[col * out_t.stride + row] = from[row * stride + col];
    }
  }
}

}  // namespace octavo
