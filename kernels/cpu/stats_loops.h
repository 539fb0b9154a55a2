/* kernels/cpu/stats_loops.h: the inner loop of quantize_stats that each level has. */
#pragma once

#include <cstdint>

namespace octavo {

/* What casts did to values. Sums of squares are in the order of the elements. */
struct CastStats {
  int64_t saturated = 0;
  int64_t underflow = 0;
  double signal = 0.0;
  double noise = 0.0;
};

struct StatsLoops {
  /* Adds n elements that share one scale: their values and their codes, decoded without it. One
   * counts as saturated when its magnitude is above `limit`, or it is no finite number. */
  void (*count)(const float *values, const float *codes, int64_t n, float scale_inv, float limit,
                CastStats *stats);
};

}  // namespace octavo
