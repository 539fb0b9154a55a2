/* kernels/cpu/level_cast.h: the loops of cast_loops.h: which way a call takes; included by
 * level.cpp only.
 *
 * Vector loops take f32, bf16 and f16 to E4M3 and E5M2; everything else, and scales that are not
 * positive and finite, goes through the plain loops.
 */
#pragma once

#include "kernels/cpu/level_cast_loops.h"
#include "kernels/cpu/level_cast_measure.h"
#include "kernels/cpu/level_codes.h"
#include "kernels/cpu/level_transpose.h"

namespace octavo {
namespace {

#ifdef OCTAVO_CAST_VECTORS

/* Calls body(Input(), Encode()) for a pair of dtypes that vector loops take; false: for no pair.
 * kOrdered: with an input whose elements stay in order. */
template <bool kOrdered, typename Body>
inline bool with_vectors(uint32_t in_dtype, uint32_t out_dtype, Body body) {
  const auto with_input = [&](auto encode) {
    switch (in_dtype) {
      case OCTAVO_F32: body(InputF32(), encode); return true;
      case OCTAVO_BF16:
        if constexpr (kOrdered) {
          body(InputBf16Wide(), encode);
        } else {
          body(InputBf16(), encode);
        }
        return true;
      case OCTAVO_F16: body(InputF16(), encode); return true;
      default: return false;
    }
  };
  if (out_dtype == OCTAVO_E4M3FN) return with_input(EncoderE4m3());
  return out_dtype == OCTAVO_E5M2 && with_input(EncoderE5m2());
}

template <bool kStreams>
ValueStats quantize_row(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                        float scale, void *out) {
  ValueStats stats;
  const bool is_done = scale > 0.0f && scale <= kFloatMax &&
                       with_vectors<false>(in_dtype, out_dtype, [&](auto input, auto encode) {
                         stats = quantize_vectors<decltype(input), decltype(encode), kStreams>(
                             in_dtype, out_dtype, in, n, scale, out);
                       });
  return is_done ? stats : quantize_plain(in_dtype, out_dtype, in, n, scale, out);
}

void quantize_each_row(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                       const float *scales, void *out) {
  const auto plain = [&](int64_t first, int64_t count) {
    quantize_each_plain(in_dtype, out_dtype,
                        static_cast<const char *>(in) + first * bytes_of(in_dtype), count,
                        scales + first, static_cast<char *>(out) + first * bytes_of(out_dtype));
  };
  const bool is_done = with_vectors<true>(in_dtype, out_dtype, [&](auto input, auto encode) {
    cast_products<decltype(input), decltype(encode)>(in, n, EachScale{scales}, out, plain);
  });
  if (!is_done) plain(0, n);
}

void quantize_blocks_row(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                         int64_t length, const float *scales, void *out) {
  const auto plain = [&](int64_t first, int64_t count) {
    quantize_block_part(in_dtype, out_dtype, in, first, first + count, length, scales, out);
  };
  const bool is_done = with_vectors<false>(in_dtype, out_dtype, [&](auto input, auto encode) {
    if (length == 32) {
      cast_products<decltype(input), decltype(encode)>(in, n, BlockScales<32>{scales}, out, plain);
    } else {
      cast_products<decltype(input), decltype(encode)>(in, n, BlockScales<128>{scales}, out, plain);
    }
  });
  if (!is_done) plain(0, n);
}

/* Level::cast: the same codes, for those who want no statistics. */
void cast_values(uint32_t dtype, const float *in, int64_t n, float scale, void *out) {
#ifdef __AVX2__
  if (dtype == OCTAVO_F16) {
    auto *halves = static_cast<uint16_t *>(out);
    int64_t i = 0;
    for (; i + kCastLanes <= n; i += kCastLanes)
      store_f16(halves + i, limited_to_f16(product(load_bits(in + i), all_of(scale))));
    return cast_row(dtype, in + i, n - i, scale, halves + i);
  }
#endif
  quantize_row<false>(OCTAVO_F32, dtype, in, n, scale, out);
}

constexpr CastLoops kCastLoops = {&quantize_row<false>,
                                  &quantize_row<kHasStreams>,
                                  &quantize_each_row,
                                  &quantize_blocks_row,
                                  &measure_any,
                                  &measure_blocks_row,
                                  &measure_each_any,
                                  &transpose_bytes,
                                  kLookUp};

#else

void cast_values(uint32_t dtype, const float *in, int64_t n, float scale, void *out) {
  cast_row(dtype, in, n, scale, out);
}

void quantize_blocks_row(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                         int64_t length, const float *scales, void *out) {
  quantize_block_part(in_dtype, out_dtype, in, 0, n, length, scales, out);
}

constexpr CastLoops kCastLoops = {&quantize_plain,      &quantize_plain,  &quantize_each_plain,
                                  &quantize_blocks_row, &measure_any,     &measure_blocks_row,
                                  &measure_each_any,    &transpose_bytes, kLookUp};

#endif

}  // namespace
}  // namespace octavo
