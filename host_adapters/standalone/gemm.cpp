// Packs both operands into panels that the tile kernel reads in order, block by block of k.
//
// Between two blocks of k the partial sums lie in c as fp32, which loses nothing: the order of
// additions is the same as without blocks.
#include <algorithm>

#include "host_adapters/standalone/loops.h"
#include "host_adapters/standalone/simd.h"

namespace octavo::standalone {
namespace {

constexpr int64_t kBlock = 256;  // k of one block: a panel of b then stays in the first-level cache
constexpr int64_t kMaxTileRows = 12;
constexpr int64_t kMaxTileCols = 32;

// panel[k][lane] = element (first + lane, k0 + k) of m, zero beyond its last row.
void pack(const Matrix &m, int64_t first, int64_t k0, int64_t k, int64_t lanes, float *panel) {
  const int64_t filled = std::min(lanes, m.rows - first);
  const float *source = m.data + first * m.row_stride + k0 * m.col_stride;
  if (m.row_stride == 1) {
    for (int64_t step = 0; step < k; ++step) {
      float *out = panel + step * lanes;
      std::copy_n(source + step * m.col_stride, filled, out);
      std::fill(out + filled, out + lanes, 0.0f);
    }
    return;
  }
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const float *row = source + lane * m.row_stride;
    for (int64_t step = 0; step < k; ++step)
      panel[step * lanes + lane] = lane < filled ? row[step * m.col_stride] : 0.0f;
  }
}

// One tile of c, through a buffer where the tile sticks out of the matrix.
void run_tile(const Simd &level, int64_t k, const float *a, const float *b, float *c,
              int64_t c_stride, int64_t rows, int64_t cols, bool accumulate) {
  if (rows == level.tile_rows && cols == level.tile_cols) {
    level.tile(k, a, b, c, c_stride, accumulate);
    return;
  }
  float edge[kMaxTileRows * kMaxTileCols] = {};
  if (accumulate)
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(c + i * c_stride, cols, edge + i * level.tile_cols);
  level.tile(k, a, b, edge, level.tile_cols, accumulate);
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(edge + i * level.tile_cols, cols, c + i * c_stride);
}

template <typename Body>
void for_panels(const Threads *threads, int64_t count, Body &&body) {
  if (threads == nullptr)
    body(int64_t{0}, count);
  else
    threads->for_ranges(count, 4, body);
}

}  // namespace

int64_t gemm_scratch(int64_t k, int64_t n) {
  return std::min(k, kBlock) * (n + kMaxTileCols);
}

void gemm(const Threads *threads, const Matrix &a, const Matrix &b, float *c, int64_t c_stride,
          float *scratch) {
  const Simd &level = simd();
  const int64_t tile_rows = level.tile_rows;
  const int64_t tile_cols = level.tile_cols;
  const Matrix right = b.transposed();  // rows are the columns of c, as pack wants them
  const int64_t row_panels = (a.rows + tile_rows - 1) / tile_rows;
  const int64_t col_panels = (right.rows + tile_cols - 1) / tile_cols;

  for (int64_t k0 = 0; k0 < a.cols; k0 += kBlock) {
    const int64_t k = std::min(kBlock, a.cols - k0);
    for_panels(threads, col_panels, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        pack(right, p * tile_cols, k0, k, tile_cols, scratch + p * tile_cols * k);
    });
    for_panels(threads, row_panels, [&](int64_t begin, int64_t end) {
      float left[kMaxTileRows * kBlock];
      for (int64_t p = begin; p < end; ++p) {
        const int64_t i = p * tile_rows;
        pack(a, i, k0, k, tile_rows, left);
        for (int64_t q = 0; q < col_panels; ++q) {
          const int64_t j = q * tile_cols;
          run_tile(level, k, left, scratch + j * k, c + i * c_stride + j, c_stride,
                   std::min(tile_rows, a.rows - i), std::min(tile_cols, right.rows - j), k0 > 0);
        }
      }
    });
  }
}

}  // namespace octavo::standalone
