/* kernels/cpu/gemm.h: what the parts of gemm share: scales as fp32, and the bf16 dot product. */
#pragma once

#include "kernels/check/calls.h"
#include "kernels/cpu/block_scales.h"

namespace octavo {

/* Both operands' multipliers of the elements of d as fp32; of the granularities PER_TENSOR and
 * PER_ROW, and of the second level of blocks of 16. */
class RowScales {
 public:
  explicit RowScales(const octavo_gemm &c);

  bool is_scaled() const { return c_.a_scale_inv != nullptr || c_.b_scale_inv != nullptr; }
  void rows(int64_t row, int rows, float *out) const;
  /* From `cols` to kMaxTileCols 0. */
  void cols(int64_t col, int cols, float *out) const;

 private:
  static void fill(const octavo_scale *s, int64_t first, int count, float *out);

  const octavo_gemm &c_;
  float second_ = 1.0f;
};

/* Block scales of both operands as f32 [blocks][width], packed on the stack, so that the workspace
 * of a call does not depend on granularities. */
class BlockScales {
 public:
  /* So many blocks along K are held at once. */
  static constexpr int64_t kBlocks = 64;

  BlockScales(const octavo_gemm &c, int col_width)
      : c_(c), col_width_(col_width), length_(block_cols(c.a_scale_inv->granularity)) {}

  /* Elements of K in a block. */
  int64_t length() const { return length_; }
  /* [count][col_width], from `cols` to col_width 0. */
  void pack_cols(int64_t col, int cols, int64_t block, int64_t count);
  /* [count][rows] */
  void pack_rows(int64_t row, int rows, int64_t block, int64_t count);

  const float *of_cols() const { return of_cols_; }
  const float *of_rows() const { return of_rows_; }

 private:
  const octavo_gemm &c_;
  int col_width_;
  int64_t length_;
  float of_rows_[kBlocks * kMaxTileRows];
  float of_cols_[kBlocks * kMaxTileCols];
};

/* The sums of fp32 tiles with block scales, for calls that check_gemm has passed. */
class BlockSums {
 public:
  BlockSums(const Level &level, const octavo_gemm &c, int64_t k)
      : level_(level),
        scales_(c, level.tile_cols),
        k_(k),
        blocks_(divide_up(k, scales_.length())) {}

  /* The columns of the tiles that follow. */
  void set_cols(int64_t col, int cols);
  /* sums[rows][tile_cols] over all of K, for the rows from `row` on. */
  void tile(int64_t row, int rows, const float *packed_a, const float *packed_b, float *sums);

 private:
  const Level &level_;
  BlockScales scales_;
  int64_t k_;
  int64_t blocks_;
  int64_t col_ = 0;
  int cols_ = 0;
};

/* The whole call by the level's bf16 dot product; see dot_loops.h. */
bool fits_dot_product(const Context &context, const octavo_gemm &c);
octavo_status gemm_by_dot_product(const Context &context, const octavo_gemm &c);

}  // namespace octavo
