/* gemm: d = a b^T: pack to fp32, register tiles, epilogue.
 *
 * Each output element is one chain of fp32 additions over k ascending, with block scales one chain
 * for each block. Products of FP8 and f16 codes are exact in fp32; those that involve f32 or bf16
 * are rounded before they are added.
 */
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/fp4.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

/* Rows [first, first + rows) of t [rows, K] as panel[k][width]; from `rows` to `width` 0. */
void pack_panel(const Context &context, const octavo_tensor &t, int64_t first, int rows, int width,
                float *panel) {
  constexpr int64_t kChunk = 64; /* so many cache lines of the panel are written at a time */
  for (int64_t k = 0; k < t.cols; k += kChunk) {
    const int64_t count = t.cols - k < kChunk ? t.cols - k : kChunk;
    float *out = panel + k * width;
    for (int row = 0; row < width; ++row) {
      float values[kChunk] = {};
      if (row < rows) load_any(context, t, first + row, k, count, values);
      for (int64_t i = 0; i < count; ++i) out[i * width + row] = values[i];
    }
  }
}

/* The same for t [K, rows], whose rows are already those of the panel. */
void pack_k_major_panel(const Context &context, const octavo_tensor &t, int64_t first, int rows,
                        int width, float *panel) {
  for (int64_t k = 0; k < t.rows; ++k) {
    float *out = panel + k * width;
    context.level->load(t.dtype, element(t, k, first), rows, out);
    for (int row = rows; row < width; ++row) out[row] = 0.0f;
  }
}

/* Whether every product is exact in fp32: significands of at most 11 bits, no extreme exponents. */
bool has_exact_products(const octavo_gemm &c) {
  return is_dtype(c.a->dtype, Dtypes::kQuantized) && is_dtype(c.b->dtype, Dtypes::kQuantized);
}

/* values = values rounded to a plain dtype. */
void round_values(const Level &level, uint32_t dtype, int cols, float *values) {
  if (dtype == OCTAVO_F32) return;
  uint16_t rounded[kMaxTileCols]; /* every other plain dtype has 16 bits */
  level.store(dtype, values, cols, rounded);
  level.load(dtype, rounded, cols, values);
}

/* From one tile of sums to d: scales (null: none), bias, accumulate, one rounding. bias_after is
 * what a linear layer that adds its bias to a finished product gives: a rounding before and one
 * after. */
void finish_tile(const Context &context, const octavo_gemm &c, const RowScales *scales,
                 const float *sums, int64_t row, int rows, int64_t col, int cols) {
  const Level &level = *context.level;
  float bias[kMaxTileCols];
  float row_scales[kMaxTileRows];
  float col_scales[kMaxTileCols];
  if (scales != nullptr) {
    scales->rows(row, rows, row_scales);
    scales->cols(col, cols, col_scales);
  }
  if (c.bias != nullptr) level.load(c.bias->dtype, element(*c.bias, 0, col), cols, bias);
  for (int r = 0; r < rows; ++r) {
    float values[kMaxTileCols];
    for (int i = 0; i < cols; ++i) values[i] = sums[r * level.tile_cols + i];
    for (int i = 0; i < cols && scales != nullptr; ++i) values[i] *= row_scales[r] * col_scales[i];
    if (c.bias != nullptr) {
      if (c.bias_after != 0) round_values(level, c.d->dtype, cols, values);
      for (int i = 0; i < cols; ++i) values[i] += bias[i];
      if (c.bias_after != 0) round_values(level, c.d->dtype, cols, values);
    }
    char *out = element(*c.d, row + r, col);
    if (c.accumulate != 0) {
      float old[kMaxTileCols];
      level.load(c.d->dtype, out, cols, old);
      for (int i = 0; i < cols; ++i) values[i] = old[i] + values[i];
    }
    level.store(c.d->dtype, values, cols, out);
  }
}

int smaller(int64_t left, int right) {
  return left < right ? static_cast<int>(left) : right;
}

/* Both operands, packed in the workspace. */
struct Panels {
  GemmShape shape;
  int64_t row_panels;
  int64_t col_panels;
  float *b; /* null when K is 0, as the workspace may be */
  float *a;
};

Panels panels_of(const Level &level, const octavo_gemm &c) {
  const GemmShape s = gemm_shape(c);
  Panels p = {s, divide_up(s.m, level.tile_rows), divide_up(s.n, level.tile_cols), nullptr,
              nullptr};
  if (s.k == 0) return p;
  p.b = static_cast<float *>(c.workspace);
  p.a = p.b + p.col_panels * level.tile_cols * s.k;
  return p;
}

octavo_status pack_operands(const Context &context, const octavo_gemm &c, const Panels &p) {
  const Level &level = *context.level;
  const int64_t k = p.shape.k;
  if (k == 0) return OCTAVO_OK;
  const auto pack_a = is_k_major(c, OCTAVO_GEMM_A_KM) ? &pack_k_major_panel : &pack_panel;
  const auto pack_b = is_k_major(c, OCTAVO_GEMM_B_KN) ? &pack_k_major_panel : &pack_panel;
  const int64_t grain = divide_up(kGrainElements, (k + 1) * level.tile_rows);
  return context.for_ranges(p.row_panels + p.col_panels, grain, [&](int64_t first, int64_t end) {
    for (int64_t panel = first; panel < end; ++panel) {
      if (panel < p.col_panels) {
        const int64_t col = panel * level.tile_cols;
        pack_b(context, *c.b, col, smaller(p.shape.n - col, level.tile_cols), level.tile_cols,
               p.b + col * k);
      } else {
        /* The last panel of a is as wide as it has rows, so there is no padding. */
        const int64_t row = (panel - p.col_panels) * level.tile_rows;
        const int rows = smaller(p.shape.m - row, level.tile_rows);
        pack_a(context, *c.a, row, rows, rows, p.a + row * k);
      }
    }
  });
}

/* The sums of a tile without scales; the interface is that of BlockSums. */
class PlainSums {
 public:
  PlainSums(const Level &level, const octavo_gemm &c, int64_t k)
      : tiles_(has_exact_products(c) ? level.exact : level.ordered), k_(k) {}

  void set_cols(int64_t, int) {}
  void tile(int64_t, int rows, const float *packed_a, const float *packed_b, float *sums) {
    tiles_[rows - 1](packed_a, packed_b, k_, sums);
  }

 private:
  const GemmTile *tiles_;
  int64_t k_;
};

template <typename Sums>
octavo_status multiply_panels(const Context &context, const octavo_gemm &c, const Panels &p,
                              const RowScales *scales) {
  const Level &level = *context.level;
  const GemmShape s = p.shape;
  constexpr int64_t kStripPanels = 16; /* panels of a that share one panel of b in cache */
  const int64_t strips = divide_up(p.row_panels, kStripPanels);
  return context.for_ranges(strips * p.col_panels, 1, [&](int64_t first, int64_t end) {
    Sums tile_sums(level, c, s.k);
    for (int64_t item = first; item < end; ++item) {
      const int64_t col = item % p.col_panels * level.tile_cols;
      const int cols = smaller(s.n - col, level.tile_cols);
      const int64_t top = item / p.col_panels * kStripPanels * level.tile_rows;
      const int64_t bottom = top + kStripPanels * level.tile_rows;
      tile_sums.set_cols(col, cols);
      for (int64_t row = top; row < s.m && row < bottom; row += level.tile_rows) {
        alignas(64) float sums[kMaxTileRows * kMaxTileCols];
        const int rows = smaller(s.m - row, level.tile_rows);
        tile_sums.tile(row, rows, s.k == 0 ? nullptr : p.a + row * s.k,
                       s.k == 0 ? nullptr : p.b + col * s.k, sums);
        finish_tile(context, c, scales, sums, row, rows, col, cols);
      }
    }
  });
}

}  // namespace

octavo_status gemm(const Context &context, const octavo_gemm &c) {
  const GemmShape shape = gemm_shape(c);
  if (shape.m == 0 || shape.n == 0) return OCTAVO_OK;
  if (fits_dot_product(context, c)) return gemm_by_dot_product(context, c);
  const Panels panels = panels_of(*context.level, c);
  octavo_status status = pack_operands(context, c, panels);
  if (status != OCTAVO_OK) return status;
  if (has_blocks(c.a_scale_inv)) {
    return multiply_panels<BlockSums>(context, c, panels, nullptr);
  }
  const RowScales scales(c);
  if (has_fp4_blocks(c.a_scale_inv)) {
    return multiply_panels<BlockSums>(context, c, panels, &scales);
  }
  return multiply_panels<PlainSums>(context, c, panels, scales.is_scaled() ? &scales : nullptr);
}

}  // namespace octavo
