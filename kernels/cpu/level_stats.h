/* kernels/cpu/level_stats.h: how well codes represent values; included by level.cpp only.
 *
 * Everything but the two sums is done in vectors: counts are integers, in any order the same. The
 * squares go through memory, so that they are added in the order of the elements on every level;
 * an element that does not count adds +0, which leaves a sum that is at least +0 as it is.
 */
#pragma once

#include "kernels/cpu/stats_loops.h"
#include "kernels/format/bits.h"

namespace octavo {
namespace {

constexpr int64_t kStatsChunk = 128; /* its squares stay in the first cache */

void count_row(const float *values, const float *codes, int64_t n, float scale_inv, float limit,
               CastStats *stats) {
  double signals[kStatsChunk];
  double noises[kStatsChunk];
  double signal = stats->signal;
  double noise = stats->noise;
  for (int64_t start = 0; start < n; start += kStatsChunk) {
    const int64_t count = n - start < kStatsChunk ? n - start : kStatsChunk;
    const float *value = values + start;
    const float *code = codes + start;
    int32_t saturated = 0;
    int32_t underflow = 0;
    for (int64_t i = 0; i < count; ++i) {
      const bool finite = is_finite(value[i]) & is_finite(code[i] * scale_inv);
      const bool above = absolute(value[i]) > limit;
      const bool vanished = (value[i] != 0.0f) & (code[i] == 0.0f);
      saturated += (!finite | above) ? 1 : 0;
      underflow += (finite & vanished) ? 1 : 0;
    }
    for (int64_t i = 0; i < count; ++i) {
      const float decoded = code[i] * scale_inv;
      const bool finite = is_finite(value[i]) & is_finite(decoded);
      const double wanted = static_cast<double>(finite ? value[i] : 0.0f);
      const double error = wanted - static_cast<double>(finite ? decoded : 0.0f);
      signals[i] = wanted * wanted;
      noises[i] = error * error;
    }
    for (int64_t i = 0; i < count; ++i) {
      signal += signals[i];
      noise += noises[i];
    }
    stats->saturated += saturated;
    stats->underflow += underflow;
  }
  stats->signal = signal;
  stats->noise = noise;
}

constexpr StatsLoops kStatsLoops = {&count_row};

}  // namespace
}  // namespace octavo
