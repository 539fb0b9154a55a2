/* kernels/cpu/level.h: the inner loops that exist once for each instruction set ("level").
 *
 * One source, level.cpp, is compiled once per level and nothing else is compiled with its flags, so
 * no instruction of a newer CPU can leak. All levels give equal bits. That source must not use
 * std:: functions: the linker would keep one copy of them, perhaps the one of the wrong level.
 */
#pragma once

#include <cstdint>

#include "kernels/cpu/cast_loops.h"
#include "kernels/cpu/dot_loops.h"
#include "kernels/cpu/prologue_loops.h"
#include "kernels/cpu/stats_loops.h"
#include "kernels/cpu/update_loops.h"

namespace octavo {

constexpr int kMaxTileRows = 12;
constexpr int kMaxTileCols = 32;

/* out[rows][tile_cols] = sums over k ascending of a[k][rows] * b[k][tile_cols], each one chain of
 * fp32 additions that starts at 0. */
using GemmTile = void (*)(const float *a, const float *b, int64_t k, float *out);

/* The same with one scale for each row, column and `length` steps of k: for every block, p is such
 * a chain, and sums[rows][tile_cols] += fl32(p * fl32(a_scale * b_scale)). Scales are f32
 * [blocks][rows] and [blocks][tile_cols]; products are exact; sums begin at 64 bytes. */
using GemmBlockTile = void (*)(const float *a, const float *b, int64_t k, int64_t length,
                               const float *a_scales, const float *b_scales, float *sums);

struct Level {
  const char *name; /* "avx2" */
  const char *id;   /* "cpu.avx2" */

  /* n values of `dtype` to fp32, exactly. */
  void (*load)(uint32_t dtype, const void *in, int64_t n, float *out);
  /* fp32 to a plain f32, bf16 or f16 with one rounding; f16 overflows to infinity. */
  void (*store)(uint32_t dtype, const float *in, int64_t n, void *out);
  /* Saturating cast of fl32(in * scale) to E4M3FN, E5M2 or scaled f16. */
  void (*cast)(uint32_t dtype, const float *in, int64_t n, float scale, void *out);
  void (*multiply)(float *values, int64_t n, float factor);
  /* `count` rows of n histories: folded into largest (NaN ignored) and has_nan; where rolls is not
   * 0 each row becomes the next one and the last becomes `newest`. */
  void (*roll_history)(float *rows, int64_t count, int64_t stride, const float *newest,
                       const int32_t *rolls, int64_t n, float *largest, int32_t *has_nan);

  int tile_rows; /* at most kMaxTileRows */
  int tile_cols; /* at most kMaxTileCols */
  /* [rows - 1]. exact: every product of the operands is exact in fp32, so a fused multiply-add
   * gives the same bits; ordered: each product is rounded before it is added. */
  GemmTile exact[kMaxTileRows];
  GemmTile ordered[kMaxTileRows];
  GemmBlockTile block[kMaxTileRows];

  PrologueLoops prologue;
  StatsLoops stats;
  CastLoops casts;
  UpdateLoops updates;
  const DotLoops *dot; /* null: no bf16 dot product on this level */
};

/* One level; levels.cpp asks the CPU, since level.cpp may not run on it. */
struct LevelEntry {
  const char *name;   /* what OCTAVO_FORCE_KERNELS says */
  const Level *level; /* null: a name that is reserved, without kernels in this build */
  bool (*is_supported)();
};

/* The best first; the last one runs on every CPU. */
extern const LevelEntry kLevels[];
extern const int kLevelCount;

}  // namespace octavo
