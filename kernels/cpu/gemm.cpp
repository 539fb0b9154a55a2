/* gemm: d = a b^T with both operands K-contiguous: pack to fp32, register tiles, epilogue.
 *
 * Each output element is one chain of fp32 additions over k ascending. Products of FP8 and f16
 * codes are exact in fp32; those that involve f32 or bf16 are rounded before they are added.
 */
#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

/* Workspace: b as panels of tile_cols columns, then a as panels of tile_rows rows, all fp32 and
 * k-major. Its size does not depend on the level and is linear in M, N (rounded up) and K. */
bool workspace_size(const octavo_gemm &c, uint64_t *bytes) {
  int64_t size = 0;
  const int64_t cols = divide_up(c.b->rows, kMaxTileCols) * kMaxTileCols;
  if (__builtin_add_overflow(cols, c.a->rows, &size)) return false;
  if (__builtin_mul_overflow(size, c.a->cols, &size)) return false;
  if (__builtin_mul_overflow(size, static_cast<int64_t>(sizeof(float)), &size)) return false;
  *bytes = static_cast<uint64_t>(size);
  return true;
}

octavo_status check_operands(Check *check, const octavo_gemm *c, uint64_t *workspace) {
  if (!check->call(c)) return check->status();
  check->tensor(c->a, "a", Dtypes::kAny);
  check->tensor(c->b, "b", Dtypes::kAny);
  if (check->ok()) check->equal(c->b->cols, c->a->cols, "b.cols", "a.cols");
  if (check->ok() && !workspace_size(*c, workspace)) {
    check->fail(OCTAVO_INVALID, "the workspace for M = %lld, N = %lld, K = %lld exceeds 2^63 bytes",
                static_cast<long long>(c->a->rows), static_cast<long long>(c->b->rows),
                static_cast<long long>(c->a->cols));
  }
  return check->status();
}

/* For sizes only the shapes count, so an operand without data is legal there. */
octavo_tensor shape_of(const octavo_tensor *t) {
  octavo_tensor shape = *t;
  shape.data = const_cast<octavo_tensor *>(t); /* not null, aligned, never read */
  return shape;
}

octavo_status check_gemm(const Context &context, const octavo_gemm *c) {
  Check check(context, "gemm");
  uint64_t workspace = 0;
  if (check_operands(&check, c, &workspace) != OCTAVO_OK) return check.status();
  check.tensor(c->d, "d", Dtypes::kPlain);
  if (check.ok()) {
    check.equal(c->d->rows, c->a->rows, "d.rows", "a.rows");
    check.equal(c->d->cols, c->b->rows, "d.cols", "b.rows");
  }
  if (c->bias != nullptr) {
    check.tensor(c->bias, "bias", Dtypes::kPlain);
    if (check.ok()) {
      check.equal(c->bias->rows, 1, "bias.rows", "the row count of a vector");
      check.equal(c->bias->cols, c->b->rows, "bias.cols", "b.rows");
    }
  }
  check.scale(c->a_scale_inv, "a_scale_inv", true);
  check.scale(c->b_scale_inv, "b_scale_inv", true);
  if (check.ok() && workspace > 0 && c->workspace == nullptr) {
    check.fail(OCTAVO_INVALID, "workspace is null; expected %llu bytes, see workspace_bytes",
               static_cast<unsigned long long>(workspace));
  }
  return check.status();
}

/* Rows [first, first + rows) of t as panel[k][width]; columns from `rows` to `width` become 0. */
void pack_panel(const Context &context, const octavo_tensor &t, int64_t first, int rows, int width,
                float *panel) {
  constexpr int64_t kChunk = 64; /* so many cache lines of the panel are written at a time */
  for (int64_t k = 0; k < t.cols; k += kChunk) {
    const int64_t count = t.cols - k < kChunk ? t.cols - k : kChunk;
    float *out = panel + k * width;
    for (int row = 0; row < width; ++row) {
      float values[kChunk] = {};
      if (row < rows) context.level->load(t.dtype, element(t, first + row, k), count, values);
      for (int64_t i = 0; i < count; ++i) out[i * width + row] = values[i];
    }
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

/* From one tile of sums to d: scale, bias, accumulate, one rounding. bias_after is what a linear
 * layer that adds its bias to a finished product gives: a rounding before and one behind. */
void finish_tile(const Context &context, const octavo_gemm &c, float factor, const float *sums,
                 int64_t row, int rows, int64_t col, int cols) {
  const Level &level = *context.level;
  const bool is_scaled = c.a_scale_inv != nullptr || c.b_scale_inv != nullptr;
  float bias[kMaxTileCols];
  if (c.bias != nullptr) level.load(c.bias->dtype, element(*c.bias, 0, col), cols, bias);
  for (int r = 0; r < rows; ++r) {
    float values[kMaxTileCols];
    for (int i = 0; i < cols; ++i) values[i] = sums[r * level.tile_cols + i];
    if (is_scaled) level.multiply(values, cols, factor);
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

}  // namespace

octavo_status gemm_workspace_bytes(void *ctx, const octavo_gemm *c, uint64_t *bytes) {
  Check check(context_of(ctx), "workspace_bytes of gemm");
  if (!check.call(c)) return check.status();
  check.not_null(c->a, "a");
  check.not_null(c->b, "b");
  if (!check.ok()) return check.status();
  const octavo_tensor a = shape_of(c->a);
  const octavo_tensor b = shape_of(c->b);
  octavo_gemm shapes = *c;
  shapes.a = &a;
  shapes.b = &b;
  return check_operands(&check, &shapes, bytes);
}

octavo_status gemm(void *ctx, const octavo_gemm *c) {
  const Context &context = context_of(ctx);
  octavo_status status = check_gemm(context, c);
  if (status != OCTAVO_OK) return status;
  const Level &level = *context.level;
  const int64_t m = c->a->rows;
  const int64_t n = c->b->rows;
  const int64_t k = c->a->cols;
  if (m == 0 || n == 0) return OCTAVO_OK;

  const int64_t row_panels = divide_up(m, level.tile_rows);
  const int64_t col_panels = divide_up(n, level.tile_cols);
  float *packed_b = static_cast<float *>(c->workspace);
  float *packed_a = k == 0 ? nullptr : packed_b + col_panels * level.tile_cols * k;
  const int64_t panel_grain = divide_up(kGrainElements, (k + 1) * level.tile_rows);
  status =
      context.for_ranges(row_panels + col_panels, panel_grain, [&](int64_t first, int64_t end) {
        for (int64_t p = first; p < end && k > 0; ++p) {
          if (p < col_panels) {
            const int64_t col = p * level.tile_cols;
            pack_panel(context, *c->b, col, smaller(n - col, level.tile_cols), level.tile_cols,
                       packed_b + col * k);
          } else {
            /* The last panel of a is as wide as it has rows, so there is no padding. */
            const int64_t row = (p - col_panels) * level.tile_rows;
            const int rows = smaller(m - row, level.tile_rows);
            pack_panel(context, *c->a, row, rows, rows, packed_a + row * k);
          }
        }
      });
  if (status != OCTAVO_OK) return status;

  const float factor = scale_value(c->a_scale_inv) * scale_value(c->b_scale_inv);
  const GemmTile *tiles = has_exact_products(*c) ? level.exact : level.ordered;
  constexpr int64_t kStripPanels = 16; /* panels of a that share one panel of b in cache */
  const int64_t strips = divide_up(row_panels, kStripPanels);
  return context.for_ranges(strips * col_panels, 1, [&](int64_t first, int64_t end) {
    for (int64_t item = first; item < end; ++item) {
      const int64_t col = item % col_panels * level.tile_cols;
      const int64_t top = item / col_panels * kStripPanels * level.tile_rows;
      const int64_t bottom = top + kStripPanels * level.tile_rows;
      for (int64_t row = top; row < m && row < bottom; row += level.tile_rows) {
        alignas(64) float sums[kMaxTileRows * kMaxTileCols];
        const int rows = smaller(m - row, level.tile_rows);
        tiles[rows - 1](k == 0 ? nullptr : packed_a + row * k,
                        k == 0 ? nullptr : packed_b + col * k, k, sums);
        finish_tile(context, *c, factor, sums, row, rows, col, smaller(n - col, level.tile_cols));
      }
    }
  });
}

}  // namespace octavo
