/* Block scales in gemm: the scales of a tile as fp32, and the tiles block by block along K.
 *
 * Scales are packed on the stack, so the workspace of a call does not depend on granularities.
 */
#include "kernels/cpu/gemm.h"

namespace octavo {
namespace {

/* The block scales of rows [first, first + rows) of an operand as f32 [blocks][width], for blocks
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

BlockSums::BlockSums(const Level &level, const octavo_gemm &c, int64_t k)
    : level_(level),
      c_(c),
      k_(k),
      length_(block_cols(c.a_scale_inv->granularity)),
      blocks_(divide_up(k, length_)) {}

void BlockSums::pack_cols(int64_t block, int64_t count) {
  pack_block_scales(*c_.b_scale_inv, col_, cols_, level_.tile_cols, block, count, b_scales_);
}

void BlockSums::set_cols(int64_t col, int cols) {
  col_ = col;
  cols_ = cols;
  if (blocks_ <= kScaleBlocks) pack_cols(0, blocks_);
}

void BlockSums::tile(int64_t row, int rows, const float *packed_a, const float *packed_b,
                     float *sums) {
  for (int i = 0; i < rows * level_.tile_cols; ++i) sums[i] = 0.0f;
  for (int64_t block = 0; block < blocks_; block += kScaleBlocks) {
    const int64_t count = blocks_ - block < kScaleBlocks ? blocks_ - block : kScaleBlocks;
    const int64_t first = block * length_;
    const int64_t steps = k_ - first < count * length_ ? k_ - first : count * length_;
    if (blocks_ > kScaleBlocks) pack_cols(block, count);
    pack_block_scales(*c_.a_scale_inv, row, rows, rows, block, count, a_scales_);
    level_.block[rows - 1](packed_a + first * rows, packed_b + first * level_.tile_cols, steps,
                           length_, a_scales_, b_scales_, sums);
  }
}

}  // namespace octavo
