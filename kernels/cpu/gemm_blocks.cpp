/* The scales of gemm as fp32: per tensor and per row for the epilogue, blocks along K for the
 * tiles.
 */
#include <algorithm>

#include "kernels/cpu/block_scales.h"
#include "kernels/cpu/fp4.h"
#include "kernels/cpu/gemm.h"

namespace octavo {
namespace {

/* The block scales of rows [first, first + rows) of an operand as f32 [count][width], for blocks
 * [block, block + count) of K; from `rows` to `width` 0. */
void pack_block_scales(const octavo_scale &s, int64_t first, int rows, int width, int64_t block,
                       int64_t count, float *out) {
  for (int row = 0; row < width; ++row) {
    const char *scales = row < rows ? scale_row(s, first + row) : nullptr;
    for (int64_t i = 0; i < count; ++i) {
      out[i * width + row] = scales == nullptr ? 0.0f : scale_inv_at(s, scales, block + i);
    }
  }
}

}  // namespace

RowScales::RowScales(const octavo_gemm &c) : c_(c) {
  /* One factor of both, which is then that of the rows. */
  if (has_fp4_blocks(c.a_scale_inv))
    second_ = nvfp4_product_factor(*c.a_scale_inv->second, *c.b_scale_inv->second);
}

void RowScales::rows(int64_t row, int rows, float *out) const {
  if (!has_fp4_blocks(c_.a_scale_inv)) return fill(c_.a_scale_inv, row, rows, out);
  std::fill_n(out, rows, second_);
}

void RowScales::cols(int64_t col, int cols, float *out) const {
  if (has_fp4_blocks(c_.b_scale_inv))
    std::fill_n(out, cols, 1.0f);
  else
    fill(c_.b_scale_inv, col, cols, out);
  std::fill(out + cols, out + kMaxTileCols, 0.0f);
}

void RowScales::fill(const octavo_scale *s, int64_t first, int count, float *out) {
  for (int i = 0; i < count; ++i) {
    out[i] = is_row_scaled(s) ? row_scale_inv(*s, first + i) : scale_value(s);
  }
}

void BlockScales::pack_cols(int64_t col, int cols, int64_t block, int64_t count) {
  pack_block_scales(*c_.b_scale_inv, col, cols, col_width_, block, count, of_cols_);
}

void BlockScales::pack_rows(int64_t row, int rows, int64_t block, int64_t count) {
  pack_block_scales(*c_.a_scale_inv, row, rows, rows, block, count, of_rows_);
}

void BlockSums::set_cols(int64_t col, int cols) {
  col_ = col;
  cols_ = cols;
  if (blocks_ <= BlockScales::kBlocks) scales_.pack_cols(col, cols, 0, blocks_);
}

void BlockSums::tile(int64_t row, int rows, const float *packed_a, const float *packed_b,
                     float *sums) {
  constexpr int64_t kBlocks = BlockScales::kBlocks;
  const int64_t length = scales_.length();
  for (int i = 0; i < rows * level_.tile_cols; ++i) sums[i] = 0.0f;
  for (int64_t block = 0; block < blocks_; block += kBlocks) {
    const int64_t count = blocks_ - block < kBlocks ? blocks_ - block : kBlocks;
    const int64_t first = block * length;
    const int64_t steps = k_ - first < count * length ? k_ - first : count * length;
    if (blocks_ > kBlocks) scales_.pack_cols(col_, cols_, block, count);
    scales_.pack_rows(row, rows, block, count);
    level_.block[rows - 1](packed_a + first * rows, packed_b + first * level_.tile_cols, steps,
                           length, scales_.of_rows(), scales_.of_cols(), sums);
  }
}

}  // namespace octavo
