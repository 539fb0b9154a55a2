/* kernels/cpu/level_cast_plain.h: the loops of cast_loops.h as plain code over level_rows.h, right
 * for every dtype, scale and value; included by level.cpp only.
 *
 * The baseline runs these alone. Levels with vector loops fall back to them.
 */
#pragma once

#include "kernels/cpu/level_rows.h"

namespace octavo {
namespace {

constexpr int64_t kPart = 512; /* 2 KiB of fp32 stay in the first cache */

inline int64_t bytes_of(uint32_t dtype) {
  return OCTAVO_DTYPE_BITS(dtype) / 8;
}

inline void merge_stats(ValueStats *all, const ValueStats &part) {
  all->amax_bits = part.amax_bits > all->amax_bits ? part.amax_bits : all->amax_bits;
  all->nonfinite = all->nonfinite || part.nonfinite;
}

/* Calls body(first, count, values) for parts of n elements as fp32. */
template <typename Body>
inline void for_parts(uint32_t in_dtype, const void *in, int64_t n, Body body) {
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t count = n - first < kPart ? n - first : kPart;
    float values[kPart];
    load_row(in_dtype, static_cast<const char *>(in) + first * bytes_of(in_dtype), count, values);
    body(first, count, values);
  }
}

ValueStats quantize_plain(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                          float scale, void *out) {
  ValueStats all;
  for_parts(in_dtype, in, n, [&](int64_t first, int64_t count, const float *values) {
    merge_stats(&all, measure_row(values, count));
    cast_row(out_dtype, values, count, scale,
             static_cast<char *>(out) + first * bytes_of(out_dtype));
  });
  return all;
}

void quantize_each_plain(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                         const float *scales, void *out) {
  for_parts(in_dtype, in, n, [&](int64_t first, int64_t count, float *values) {
    multiply_each_row(values, scales + first, count, values);
    cast_row(out_dtype, values, count, 1.0f,
             static_cast<char *>(out) + first * bytes_of(out_dtype));
  });
}

/* The elements [begin, end) of a row of blocks; `begin` may be inside of one. */
inline void quantize_block_part(uint32_t in_dtype, uint32_t out_dtype, const void *in,
                                int64_t begin, int64_t end, int64_t length, const float *scales,
                                void *out) {
  for (int64_t i = begin; i < end;) {
    const int64_t border = (i / length + 1) * length;
    const int64_t count = (border < end ? border : end) - i;
    quantize_plain(in_dtype, out_dtype, static_cast<const char *>(in) + i * bytes_of(in_dtype),
                   count, scales[i / length], static_cast<char *>(out) + i * bytes_of(out_dtype));
    i += count;
  }
}

/* Halves as bits of |value|, the largest of them. */
inline int32_t largest_half(const uint16_t *values, int64_t n) {
  int16_t highest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<int16_t>(values[i] & 0x7FFF);
    highest = magnitude > highest ? magnitude : highest;
  }
  return highest;
}

inline int32_t largest_float(const float *values, int64_t n) {
  int32_t highest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    highest = magnitude > highest ? magnitude : highest;
  }
  return highest;
}

/* Magnitudes are ordered as their bits are, in every plain dtype; only where NaN hides the largest
 * number are elements looked at one by one. */
ValueStats measure_any(uint32_t in_dtype, const void *in, int64_t n) {
  constexpr int64_t kRun = 4096;
  ValueStats all;
  for (int64_t first = 0; first < n; first += kRun) {
    const int64_t count = n - first < kRun ? n - first : kRun;
    const char *from = static_cast<const char *>(in) + first * bytes_of(in_dtype);
    int32_t highest = kQuietNanBits; /* of FP8: not known yet */
    if (in_dtype == OCTAVO_F32) {
      highest = largest_float(reinterpret_cast<const float *>(from), count);
    } else if (in_dtype == OCTAVO_BF16) {
      highest = largest_half(reinterpret_cast<const uint16_t *>(from), count) << 16;
    } else if (in_dtype == OCTAVO_F16) {
      const int32_t half = largest_half(reinterpret_cast<const uint16_t *>(from), count);
      highest = float_bits(decode_f16(static_cast<uint16_t>(half)));
    }
    if (highest <= kInfinityBits) {
      merge_stats(&all, {highest, highest == kInfinityBits});
      continue;
    }
    for_parts(in_dtype, from, count, [&](int64_t, int64_t length, const float *values) {
      merge_stats(&all, measure_row(values, length));
    });
  }
  return all;
}

ValueStats measure_blocks_plain(uint32_t in_dtype, const void *in, int64_t n, int64_t length,
                                int32_t *amax_bits) {
  ValueStats all;
  for (int64_t first = 0; first < n; first += length) {
    const int64_t count = n - first < length ? n - first : length;
    const ValueStats part =
        measure_any(in_dtype, static_cast<const char *>(in) + first * bytes_of(in_dtype), count);
    amax_bits[first / length] = part.amax_bits;
    merge_stats(&all, part);
  }
  return all;
}

void measure_each_any(uint32_t in_dtype, const void *in, int64_t n, int32_t *amax_bits) {
  if (in_dtype == OCTAVO_F32) return measure_each_row(static_cast<const float *>(in), n, amax_bits);
  for_parts(in_dtype, in, n, [&](int64_t first, int64_t count, const float *values) {
    measure_each_row(values, count, amax_bits + first);
  });
}

}  // namespace
}  // namespace octavo
