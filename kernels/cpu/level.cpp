/* One level of the CPU kernels, named by OCTAVO_LEVEL (baseline, avx2, avx512, avx512_bf16 or
 * neon).
 *
 * Compiled once per level; see level.h for what must not appear here.
 */
#include "kernels/cpu/level.h"

#include "kernels/cpu/level_cast.h"
#include "kernels/cpu/level_codes.h"
#include "kernels/cpu/level_dot.h"
#include "kernels/cpu/level_loops.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/level_update.h"

#define OCTAVO_STRING_OF(text) #text
#define OCTAVO_STRING(macro) OCTAVO_STRING_OF(macro)
#define OCTAVO_JOIN_OF(left, right) left##right
#define OCTAVO_JOIN(left, right) OCTAVO_JOIN_OF(left, right)

namespace octavo {
namespace {

constexpr Level make_level() {
  Level level = {OCTAVO_STRING(OCTAVO_LEVEL),
                 "cpu." OCTAVO_STRING(OCTAVO_LEVEL),
                 load_all,
                 store_all,
                 &cast_values,
                 &multiply_row,
                 &roll_history,
                 kTileRows,
                 kTileCols,
                 {},
                 {},
                 {},
                 kPrologueLoops,
                 kStatsLoops,
                 kCastLoops,
                 kUpdateLoops,
                 kDot};
  fill_tiles<kTileRows, true>(level.exact);
  fill_tiles<kTileRows, false>(level.ordered);
  fill_block_tiles<kTileRows>(level.block);
  return level;
}

}  // namespace

/* level_avx2 and so on; levels.cpp lists them. */
extern const Level OCTAVO_JOIN(level_, OCTAVO_LEVEL);
constexpr Level OCTAVO_JOIN(level_, OCTAVO_LEVEL) = make_level();

}  // namespace octavo
