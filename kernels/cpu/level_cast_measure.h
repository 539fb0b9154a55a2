/* kernels/cpu/level_cast_measure.h: the amax of every block of a row; included by level.cpp only.
 *
 * Four blocks are reduced together: transposing their lane maxima costs less than four reductions.
 */
#pragma once

#include "kernels/cpu/level_cast_loops.h"
#include "kernels/cpu/level_cast_plain.h"

namespace octavo {
namespace {

#ifdef OCTAVO_CAST_VECTORS

/* Lane maxima of the magnitudes of kLength elements. */
template <typename Input, int kLength>
inline Bits block_maxima(const char *in) {
  if constexpr (Input::kHalves) {
    Bits seen = and_bits(load_bits(in), all_of(0x7FFF7FFF));
    for (int i = 2 * kCastLanes; i < kLength; i += 2 * kCastLanes) {
      seen = larger_halves(seen, and_bits(load_bits(in + i * 2), all_of(0x7FFF7FFF)));
    }
    const Bits upper = and_bits(seen, all_of(Magnitudes<Input>::kUpperHalf));
    return larger(shift_left_16(seen), upper);
  } else {
    Bits seen = without_signs(Input::load(in));
    for (int i = kCastLanes; i < kLength; i += kCastLanes) {
      seen = larger(seen, without_signs(Input::load(in + i * Input::kBytes)));
    }
    return seen;
  }
}

template <typename Input, int kLength>
ValueStats measure_blocks_vectors(uint32_t in_dtype, const void *in, int64_t n,
                                  int32_t *amax_bits) {
  constexpr int64_t kFour = 4 * kLength;
  const char *from = static_cast<const char *>(in);
  ValueStats all;
  int64_t first = 0;
  for (; first + kFour <= n; first += kFour) {
    Bits maxima[4];
    for (int block = 0; block < 4; ++block) {
      maxima[block] =
          block_maxima<Input, kLength>(from + (first + block * kLength) * Input::kBytes);
    }
    const FourLanes four = four_maxima(maxima[0], maxima[1], maxima[2], maxima[3]);
    store_four(amax_bits + first / kLength, four);
    const int32_t highest = largest_of_four(four);
    ValueStats part = {highest, highest >= kInfinityBits};
    if (highest > kInfinityBits) {
      part = measure_blocks_plain(in_dtype, from + first * Input::kBytes, kFour, kLength,
                                  amax_bits + first / kLength);
    }
    merge_stats(&all, part);
  }
  if (first < n) {
    merge_stats(&all, measure_blocks_plain(in_dtype, from + first * Input::kBytes, n - first,
                                           kLength, amax_bits + first / kLength));
  }
  return all;
}

#endif

/* length: 32 or 128. */
ValueStats measure_blocks_row(uint32_t in_dtype, const void *in, int64_t n, int64_t length,
                              int32_t *amax_bits) {
#ifdef OCTAVO_CAST_VECTORS
  if (in_dtype == OCTAVO_F32) {
    return length == 32 ? measure_blocks_vectors<InputF32, 32>(in_dtype, in, n, amax_bits)
                        : measure_blocks_vectors<InputF32, 128>(in_dtype, in, n, amax_bits);
  }
  if (in_dtype == OCTAVO_BF16) {
    return length == 32 ? measure_blocks_vectors<InputBf16, 32>(in_dtype, in, n, amax_bits)
                        : measure_blocks_vectors<InputBf16, 128>(in_dtype, in, n, amax_bits);
  }
#endif
  return measure_blocks_plain(in_dtype, in, n, length, amax_bits);
}

}  // namespace
}  // namespace octavo
