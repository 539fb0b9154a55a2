/* kernels/cpu/level_rows.h: loops over a row of elements, in plain code; included by level.cpp
 * only. */
#pragma once

#include "kernels/cpu/level.h"
#include "kernels/cpu/update_loops.h"
#include "kernels/format/float16.h"
#include "kernels/format/float8.h"
#include "octavo/tensor.h"

namespace octavo {
namespace {

/* Loops over a row of elements.
 *
 * Each is a plain loop over branch-free functions of kernels/format, which the compiler turns
 * into vector code of the level. Keep them free of calls and early exits, or that stops
 * silently. */

template <typename In, typename Out, typename Function>
inline void map_row(const void *in, int64_t n, void *out, Function function) {
  const In *__restrict from = static_cast<const In *>(in);
  Out *__restrict to = static_cast<Out *>(out);
  for (int64_t i = 0; i < n; ++i) to[i] = function(from[i]);
}

void load_row(uint32_t dtype, const void *in, int64_t n, float *out) {
  switch (dtype) {
    case OCTAVO_F32: return map_row<float, float>(in, n, out, [](float v) { return v; });
    case OCTAVO_BF16:
      return map_row<uint16_t, float>(in, n, out, [](uint16_t v) { return decode_bf16(v); });
    case OCTAVO_F16:
      return map_row<uint16_t, float>(in, n, out, [](uint16_t v) { return decode_f16(v); });
    case OCTAVO_E4M3FN:
      return map_row<uint8_t, float>(in, n, out, [](uint8_t v) { return decode_e4m3(v); });
    default: return map_row<uint8_t, float>(in, n, out, [](uint8_t v) { return decode_e5m2(v); });
  }
}

void store_row(uint32_t dtype, const float *in, int64_t n, void *out) {
  switch (dtype) {
    case OCTAVO_F32: return map_row<float, float>(in, n, out, [](float v) { return v; });
    case OCTAVO_BF16:
      return map_row<float, uint16_t>(in, n, out, [](float v) { return encode_bf16(v); });
    default: return map_row<float, uint16_t>(in, n, out, [](float v) { return encode_f16(v); });
  }
}

void cast_row(uint32_t dtype, const float *in, int64_t n, float scale, void *out) {
  switch (dtype) {
    case OCTAVO_E4M3FN:
      return map_row<float, uint8_t>(in, n, out,
                                     [scale](float v) { return encode_e4m3(scaled_by(v, scale)); });
    case OCTAVO_E5M2:
      return map_row<float, uint8_t>(in, n, out,
                                     [scale](float v) { return encode_e5m2(scaled_by(v, scale)); });
    default:
      return map_row<float, uint16_t>(
          in, n, out, [scale](float v) { return encode_f16_saturating(scaled_by(v, scale)); });
  }
}

void multiply_row(float *values, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) values[i] = scaled_by(values[i], factor);
}

void multiply_each_row(const float *in, const float *factors, int64_t n, float *out) {
  for (int64_t i = 0; i < n; ++i) out[i] = scaled_by(in[i], factors[i]);
}

ValueStats measure_row(const float *values, int64_t n) {
  int32_t largest = 0;
  int32_t highest = 0; /* NaN included */
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    const int32_t number = magnitude > kInfinityBits ? 0 : magnitude;
    largest = number > largest ? number : largest;
    highest = magnitude > highest ? magnitude : highest;
  }
  return {largest, highest >= kInfinityBits};
}

void measure_each_row(const float *values, int64_t n, int32_t *amax_bits) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = float_bits(values[i]) & kMagnitudeMask;
    const int32_t number = magnitude > kInfinityBits ? 0 : magnitude;
    amax_bits[i] = number > amax_bits[i] ? number : amax_bits[i];
  }
}

/* Roundings besides the one to nearest even, over rows.
 *
 * Plain loops over the functions of kernels/format/rounding.h, as in level_rows.h. */

/* Calls body(begin, end, high) for the runs of [0, n) whose elements share the high 32 bits. */
template <typename Body>
inline void for_high_halves(uint64_t first, int64_t n, Body &&body) {
  for (int64_t begin = 0; begin < n;) {
    const uint64_t left = 0x100000000u - ((first + static_cast<uint64_t>(begin)) & 0xFFFFFFFFu);
    int64_t end = n;
    if (left < static_cast<uint64_t>(n - begin)) end = begin + static_cast<int64_t>(left);
    body(begin, end, static_cast<uint32_t>((first + static_cast<uint64_t>(begin)) >> 32));
    begin = end;
  }
}

template <typename Code, typename Encode>
inline void cast_each(const float *values, int64_t n, float scale, RandomKey key, uint64_t first,
                      void *codes, Encode encode) {
  for_high_halves(first, n, [&](int64_t begin, int64_t end, uint32_t high) {
    const float *__restrict from = values;
    Code *__restrict to = static_cast<Code *>(codes);
    const uint32_t low = static_cast<uint32_t>(first);
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t random = random_bits(key, low + static_cast<uint32_t>(i), high);
      to[i] = encode(scaled_by(from[i], scale), random);
    }
  });
}

void cast_random_row(uint32_t dtype, bool is_scaled, const float *values, int64_t n, float scale,
                     RandomKey key, uint64_t first, void *codes) {
  switch (dtype) {
    case OCTAVO_E4M3FN:
      return cast_each<uint8_t>(values, n, scale, key, first, codes, [](float v, uint32_t random) {
        return encode_e4m3_random(v, random);
      });
    case OCTAVO_E5M2:
      return cast_each<uint8_t>(values, n, scale, key, first, codes, [](float v, uint32_t random) {
        return encode_e5m2_random(v, random);
      });
    case OCTAVO_BF16:
      return cast_each<uint16_t>(values, n, scale, key, first, codes, [](float v, uint32_t random) {
        return encode_bf16_random(v, random);
      });
    default: break;
  }
  if (is_scaled)
    return cast_each<uint16_t>(values, n, scale, key, first, codes, [](float v, uint32_t random) {
      return encode_f16_random<kSaturatedF16>(v, random);
    });
  cast_each<uint16_t>(values, n, scale, key, first, codes, [](float v, uint32_t random) {
    return encode_f16_random<kPlainF16>(v, random);
  });
}

template <bool kIsE4m3>
void round_again_each(const float *__restrict values, const float *__restrict scale_inv, int64_t n,
                      RandomKey key, uint64_t first, uint64_t step, uint8_t *__restrict codes) {
  const auto high = static_cast<uint32_t>(first >> 32);
  if ((first + static_cast<uint64_t>(n) * step) >> 32 != high) {
    for (int64_t i = 0; i < n; ++i)
      codes[i] = round_code(kIsE4m3, values[i], scale_inv[i], key,
                            first + static_cast<uint64_t>(i) * step);
    return;
  }
  const auto low = static_cast<uint32_t>(first), width = static_cast<uint32_t>(step);
  for (int64_t i = 0; i < n; ++i)
    codes[i] = round_code(kIsE4m3, values[i], scale_inv[i], key,
                          low + static_cast<uint32_t>(i) * width, high);
}

void round_again_row(uint32_t dtype, const float *values, const float *scale_inv, int64_t n,
                     RandomKey key, uint64_t first, uint64_t step, uint8_t *codes) {
  dtype == OCTAVO_E4M3FN ? round_again_each<true>(values, scale_inv, n, key, first, step, codes)
                         : round_again_each<false>(values, scale_inv, n, key, first, step, codes);
}

void encode_expanded_random_row(const ExpandedGroup &g, const float *values, int64_t n,
                                RandomKey key, uint64_t first, uint8_t *codes) {
  for (int64_t i = 0; i < n; ++i)
    codes[i] =
        encode_expanded_random(g, values[i], random_bits(key, first + static_cast<uint64_t>(i)));
}

template <typename Code>
inline void shrink_each(const float *__restrict stored, const float *__restrict values,
                        const float *__restrict old, float limit, int64_t n,
                        Code *__restrict codes) {
  for (int64_t i = 0; i < n; ++i) {
    const int less = undoes_decay(stored[i], values[i], old[i], limit) ? 1 : 0;
    codes[i] = static_cast<Code>(codes[i] - less);
  }
}

void shrink_row(int64_t bytes, const float *stored, const float *values, const float *old,
                float limit, int64_t n, void *codes) {
  bytes == 1 ? shrink_each(stored, values, old, limit, n, static_cast<uint8_t *>(codes))
             : shrink_each(stored, values, old, limit, n, static_cast<uint16_t *>(codes));
}

constexpr RoundingLoops kRoundingLoops = {&cast_random_row, &round_again_row,
                                          &encode_expanded_random_row, &shrink_row};

/* The loops of cast_loops.h as plain code over level_rows.h, right for every dtype, scale and
 * value.
 *
 * The baseline runs these alone. Levels with vector loops fall back to them. */

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
