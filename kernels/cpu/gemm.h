/* kernels/cpu/gemm.h: what the parts of gemm share: sizes, and the checks of a call.
 *
 * M, N and K are never read from a tensor's rows and cols directly, since a plain operand may lie
 * the other way round.
 */
#ifndef OCTAVO_KERNELS_CPU_GEMM_H
#define OCTAVO_KERNELS_CPU_GEMM_H

#include "kernels/cpu/block_scales.h"

namespace octavo {

struct GemmShape {
  int64_t m;
  int64_t n;
  int64_t k;
};

inline bool is_k_major(const octavo_gemm &c, uint32_t operand) {
  return (c.layout & operand) != 0;
}

inline GemmShape gemm_shape(const octavo_gemm &c) {
  const bool a_km = is_k_major(c, OCTAVO_GEMM_A_KM);
  const bool b_kn = is_k_major(c, OCTAVO_GEMM_B_KN);
  return {a_km ? c.a->cols : c.a->rows, b_kn ? c.b->cols : c.b->rows, a_km ? c.a->rows : c.a->cols};
}

/* Everything about a call; the text of a failure has gone to the host. */
octavo_status check_gemm(const Context &context, const octavo_gemm *c);

/* The sums of tiles with block scales, for calls that check_gemm has passed. */
class BlockSums {
 public:
  BlockSums(const Level &level, const octavo_gemm &c, int64_t k);

  /* The columns of the tiles that follow. */
  void set_cols(int64_t col, int cols);
  /* sums[rows][tile_cols] over all of K, for the rows from `row` on. */
  void tile(int64_t row, int rows, const float *packed_a, const float *packed_b, float *sums);

 private:
  /* So many blocks along K have their scales in this object; a longer K packs them per tile. */
  static constexpr int64_t kScaleBlocks = 64;

  void pack_cols(int64_t block, int64_t count);

  const Level &level_;
  const octavo_gemm &c_;
  int64_t k_;
  int64_t length_;
  int64_t blocks_;
  int64_t col_ = 0;
  int cols_ = 0;
  float a_scales_[kScaleBlocks * kMaxTileRows];
  float b_scales_[kScaleBlocks * kMaxTileCols];
};

}  // namespace octavo

#endif
