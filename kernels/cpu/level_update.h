/* kernels/cpu/level_update.h: the loops of update_loops.h; included by level.cpp only. */
#pragma once

#include "kernels/cpu/level_adam.h"
#include "kernels/cpu/level_adam_layouts.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/level_states.h"
#include "kernels/cpu/level_update_values.h"
#include "kernels/cpu/update_loops.h"

namespace octavo {
namespace {

/* Sums of codes over shards, of columns and of squares.
 *
 * Which numbers are added in which order is part of update_loops.h and sum_order.h, so vectors
 * only take as many independent sums at once as they have lanes. */

/* The plain loop; sums of Inf and NaN, and what vectors leave over. */
int64_t sum_few_codes(uint32_t dtype, const uint8_t *codes, uint64_t shards, uint64_t stride,
                      int64_t n, uint8_t *out) {
  constexpr int64_t kSumPart = 512; /* 2 KiB of fp32 stay in the first cache */
  const float largest = dtype == OCTAVO_E4M3FN ? kMaxE4m3 : kMaxE5m2;
  int64_t outside = 0;
  for (int64_t first = 0; first < n; first += kSumPart) {
    const int64_t count = n - first < kSumPart ? n - first : kSumPart;
    float sums[kSumPart] = {};
    for (uint64_t shard = 0; shard < shards; ++shard) {
      float values[kSumPart];
      load_row(dtype, codes + shard * stride + static_cast<uint64_t>(first), count, values);
      for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
    }
    for (int64_t i = 0; i < count; ++i) outside += absolute(sums[i]) > largest ? 1 : 0;
    for (int64_t i = 0; i < count; ++i) sums[i] = with_one_nan(sums[i]);
    cast_row(dtype, sums, count, 1.0f, out + first);
  }
  return outside;
}

#ifdef OCTAVO_CAST_VECTORS

template <typename Values>
int64_t sum_groups(uint32_t dtype, const uint8_t *codes, uint64_t shards, uint64_t stride,
                   int64_t n, float largest, uint8_t *out) {
  const Values format;
  int64_t outside = 0;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    Group sums = {};
    for (uint64_t shard = 0; shard < shards; ++shard) {
      Group values;
      format.load(reinterpret_cast<const char *>(codes + shard * stride) + i, values);
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVectors; ++v) sums[v] += values[v];
    }
    UpdateBits highest = {};
#pragma GCC unroll 4
    for (int v = 0; v < kGroupVectors; ++v) {
      highest = higher(highest, as_bits(sums[v]) & kMagnitudeMask);
    }
    const Vector magnitudes = as_values(highest); /* the largest one of each lane */
    if (__builtin_expect(!is_empty(lanes_beyond(magnitudes, largest)), 0)) {
      if (!is_empty(lanes_beyond(magnitudes, kFloatMax))) {
        outside += sum_few_codes(dtype, codes + i, shards, stride, kGroup, out + i);
        continue;
      }
      for (int v = 0; v < kGroupVectors; ++v) {
        const Vector magnitude = as_values(as_bits(sums[v]) & kMagnitudeMask);
        outside += count_of(lanes_beyond(magnitude, largest));
      }
    }
    auto codes_out = format.write(reinterpret_cast<char *>(out) + i);
#pragma GCC unroll 4
    for (int v = 0; v < kGroupVectors; ++v) codes_out.template set<true>(v, sums[v], 0);
    codes_out.finish();
  }
  return outside + sum_few_codes(dtype, codes + i, shards, stride, n - i, out + i);
}

int64_t sum_codes(uint32_t dtype, const uint8_t *codes, uint64_t shards, uint64_t stride, int64_t n,
                  uint8_t *out) {
  if (dtype == OCTAVO_E4M3FN) {
    return sum_groups<E4m3Values>(dtype, codes, shards, stride, n, kMaxE4m3, out);
  }
  return sum_groups<E5m2Values>(dtype, codes, shards, stride, n, kMaxE5m2, out);
}

#else

constexpr auto *sum_codes = &sum_few_codes;

#endif

void add_each(const float *values, int64_t n, double *sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(values[i]);
}

/* In the order of memory: a sum's elements are a kilobyte apart, and taking several of them at once
 * reads that many streams, which costs two thirds of the speed beyond the caches. */
void add_squares(const float *values, int64_t n, double *sums) {
  for (int64_t first = 0; first < n; first += kSquareSums) {
    const int64_t count = n - first < kSquareSums ? n - first : kSquareSums;
    for (int64_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(values[first + i]);
      sums[i] += value * value;
    }
  }
}

/* The loops of update_loops.h. */

uint8_t highest_code(const uint8_t *codes, int64_t n) {
  uint8_t highest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t code = codes[i] & 0x7F;
    highest = code > highest ? code : highest;
  }
  return highest;
}

constexpr UpdateLoops kUpdateLoops = {&step_rows,     kFusedAdam,    kStateLoops,
                                      kRoundingLoops, &highest_code, sum_codes,
                                      &add_each,      &add_squares,  &add_halves};

}  // namespace
}  // namespace octavo
