/* kernels/cpu/level_rounding.h: roundings besides the one to nearest even, over rows; included by
 * level.cpp only.
 *
 * Plain loops over the functions of kernels/format/rounding.h, as in level_rows.h.
 */
#pragma once

#include "kernels/cpu/update_loops.h"
#include "octavo/tensor.h"

namespace octavo {
namespace {

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
      to[i] = encode(from[i] * scale, random);
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

}  // namespace
}  // namespace octavo
