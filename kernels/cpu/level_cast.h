/* kernels/cpu/level_cast.h: the loops of cast_loops.h; included by level.cpp only. */
#ifndef OCTAVO_KERNELS_CPU_LEVEL_CAST_H
#define OCTAVO_KERNELS_CPU_LEVEL_CAST_H

#include "kernels/cpu/level_rows.h"

namespace octavo {
namespace {

ValueStats quantize_row(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                        float scale, void *out) {
  constexpr int64_t kPart = 512; /* 2 KiB of fp32 stay in the first cache */
  const int64_t in_bytes = OCTAVO_DTYPE_BITS(in_dtype) / 8;
  ValueStats all;
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = n - first < kPart ? n - first : kPart;
    float values[kPart];
    load_row(in_dtype, static_cast<const char *>(in) + first * in_bytes, count, values);
    const ValueStats stats = measure_row(values, count);
    all.amax_bits = stats.amax_bits > all.amax_bits ? stats.amax_bits : all.amax_bits;
    all.nonfinite = all.nonfinite || stats.nonfinite;
    cast_row(out_dtype, values, count, scale, static_cast<char *>(out) + first);
  }
  return all;
}

constexpr CastLoops kCastLoops = {&quantize_row};

}  // namespace
}  // namespace octavo

#endif
