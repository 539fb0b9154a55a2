/* kernels/cpu/level_cast.h: the loops of cast_loops.h; included by level.cpp only. */
#pragma once

#include "kernels/cpu/level_cast_vectors.h"
#include "kernels/cpu/level_codes.h"
#include "kernels/cpu/level_rows.h"

namespace octavo {
namespace {

/* Rows to codes, kCastStep elements at a time.
 *
 * A row is cut into chunks. NaN shows in the largest magnitude that a chunk has seen (its bits
 * are above those of infinity), and then the plain loop repeats that chunk. */

#ifdef OCTAVO_CAST_VECTORS

constexpr int64_t kChunk = 4096; /* elements, a multiple of every step */

/* Inputs: how a step's elements become `raw` vectors, which have the signs, and magnitudes. */
struct InputF32 {
  static constexpr int kBytes = 4;
  static constexpr bool kHalves = false;
  static Bits load(const char *from) { return load_bits(from); }
};

struct InputBf16Wide {
  static constexpr int kBytes = 2;
  static constexpr bool kHalves = false;
  static Bits load(const char *from) { return widen_bf16(from); }
};

struct InputF16 {
  static constexpr int kBytes = 2;
  static constexpr bool kHalves = false;
  static Bits load(const char *from) { return widen_f16(from); }
};

/* bf16 that stays packed while it is measured; its elements come out of order, so every element of
 * 2 * kCastLanes must have one scale. */
struct InputBf16 {
  static constexpr int kBytes = 2;
  static constexpr bool kHalves = true;
};

/* What a step sees for the sake of NaN and amax. */
enum class Seen { kInputs, kProducts };

template <typename Input>
struct Magnitudes {
  Bits seen = all_of(0);

  /* The magnitudes of a step; `raw` takes its vectors. */
  void load(const char *in, bool sees, Bits *raw, Bits *magnitudes) {
    if constexpr (Input::kHalves) {
      const Bits mask = all_of(0x7FFF7FFF);
      for (int half = 0; half < 2; ++half) {
        raw[half] = load_bits(in + half * 4 * kCastLanes);
        const Bits halves = and_bits(raw[half], mask);
        if (sees) seen = larger_halves(seen, halves);
        magnitudes[2 * half] = low_halves(halves);
        magnitudes[2 * half + 1] = high_halves(halves);
      }
    } else {
      for (int v = 0; v < 4; ++v) {
        raw[v] = Input::load(in + v * kCastLanes * Input::kBytes);
        magnitudes[v] = without_signs(raw[v]);
        if (sees) seen = larger(seen, magnitudes[v]);
      }
    }
  }

  /* The largest magnitude as bits of fp32. */
  int32_t largest(bool of_inputs) const {
    if (Input::kHalves && of_inputs) {
      return largest_lane(larger(shift_left_16(seen), and_bits(seen, all_of(kUpperHalf))));
    }
    return largest_lane(seen);
  }

  static constexpr int32_t kUpperHalf = static_cast<int32_t>(0xFFFF0000);
};

/* Scales: the multipliers of the vector v of a step whose first element is i. */
struct OneScale {
  Bits scale;
  Bits at(int64_t, int) const { return scale; }
};

struct EachScale {
  const float *scales;
  Bits at(int64_t i, int v) const { return load_bits(scales + i + v * kCastLanes); }
};

template <int kLength>
struct BlockScales {
  static_assert(kLength % kCastStep == 0 || kCastStep % kLength == 0);
  static_assert(kLength % (2 * kCastLanes) == 0);
  const float *scales;
  /* A step is within a block, or begins with one. */
  Bits at(int64_t i, int v) const {
    return all_of(scales[static_cast<uint64_t>(i) / kLength + v * kCastLanes / kLength]);
  }
};

/* The steps of [begin, end), which is a multiple of them; gives the largest magnitude seen. */
template <typename Input, typename Encode, Seen kSeen, bool kStreams, typename Scales>
inline int32_t cast_steps(const char *in, int64_t begin, int64_t end, const Scales &scales,
                          uint8_t *out) {
  const Encode encode;
  const Packer<Input::kHalves> pack;
  Magnitudes<Input> magnitudes;
  for (int64_t i = begin; i < end; i += kCastStep) {
    Bits raw[4];
    Bits y[4];
    magnitudes.load(in + i * Input::kBytes, kSeen == Seen::kInputs, raw, y);
    for (int v = 0; v < 4; ++v) {
      y[v] = product(y[v], scales.at(i, v));
      if (kSeen == Seen::kProducts) magnitudes.seen = larger(magnitudes.seen, y[v]);
      y[v] = encode(y[v]);
    }
    const Bits codes = pack(y, raw);
    if (kStreams) {
      stream_bits(out + i, codes);
    } else {
      store_bits(out + i, codes);
    }
  }
  return magnitudes.largest(kSeen == Seen::kInputs);
}

/* Fewer elements than a step, through a step of zeros. */
template <typename Input, typename Encode>
inline int32_t cast_rest(const char *in, int64_t n, Bits scale, uint8_t *out) {
  alignas(64) char from[kCastStep * Input::kBytes] = {};
  alignas(64) uint8_t to[kCastStep];
  __builtin_memcpy(from, in, static_cast<size_t>(n * Input::kBytes));
  const int32_t largest =
      cast_steps<Input, Encode, Seen::kInputs, false>(from, 0, kCastStep, OneScale{scale}, to);
  __builtin_memcpy(out, to, static_cast<size_t>(n));
  return largest;
}

/* One chunk with one scale. */
template <typename Input, typename Encode, bool kStreams>
inline int32_t cast_chunk(const char *in, int64_t n, Bits scale, uint8_t *out) {
  const int64_t whole = n / kCastStep * kCastStep;
  int32_t largest =
      cast_steps<Input, Encode, Seen::kInputs, kStreams>(in, 0, whole, OneScale{scale}, out);
  if (whole < n) {
    const int32_t rest =
        cast_rest<Input, Encode>(in + whole * Input::kBytes, n - whole, scale, out + whole);
    largest = rest > largest ? rest : largest;
  }
  return largest;
}

/* `scale` is positive and finite. */
template <typename Input, typename Encode, bool kStreams>
ValueStats quantize_vectors(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                            float scale, void *out) {
  const char *from = static_cast<const char *>(in);
  auto *to = static_cast<uint8_t *>(out);
  const Bits factor = all_of(scale);
  ValueStats all;
  int64_t begin = 0;
  while (begin < n) {
    int64_t count = n - begin < kChunk ? n - begin : kChunk;
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to + begin) % kCastStep);
    const bool is_aligned = past == 0;
    if (kStreams && !is_aligned && kCastStep - past < count) count = kCastStep - past;
    const int32_t largest = kStreams && is_aligned
                                ? cast_chunk<Input, Encode, true>(from + begin * Input::kBytes,
                                                                  count, factor, to + begin)
                                : cast_chunk<Input, Encode, false>(from + begin * Input::kBytes,
                                                                   count, factor, to + begin);
    ValueStats part = {largest, largest >= kInfinityBits};
    if (largest > kInfinityBits) {
      part = quantize_plain(in_dtype, out_dtype, from + begin * Input::kBytes, count, scale,
                            to + begin);
    }
    merge_stats(&all, part);
    begin += count;
  }
  if (kStreams) end_streams();
  return all;
}

/* Chunks with scales that differ, without statistics: a scale that is negative or NaN, or that
 * makes NaN of 0 or infinity, shows in the products as NaN in the input does. */
template <typename Input, typename Encode, typename Scales, typename Plain>
inline void cast_products(const void *in, int64_t n, const Scales &scales, void *out, Plain plain) {
  const char *from = static_cast<const char *>(in);
  auto *to = static_cast<uint8_t *>(out);
  const int64_t whole = n / kCastStep * kCastStep;
  for (int64_t begin = 0; begin < whole; begin += kChunk) {
    const int64_t end = whole - begin < kChunk ? whole : begin + kChunk;
    const int32_t largest =
        cast_steps<Input, Encode, Seen::kProducts, false>(from, begin, end, scales, to);
    if (static_cast<uint32_t>(largest) > static_cast<uint32_t>(kInfinityBits)) {
      plain(begin, end - begin);
    }
  }
  if (whole < n) plain(whole, n - whole);
}

#endif

/* The amax of every block of a row.
 *
 * Four blocks are reduced together: transposing their lane maxima costs less than four
 * reductions. */

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

/* The loops of cast_loops.h: which way a call takes.
 *
 * Vector loops take f32, bf16 and f16 to E4M3 and E5M2; everything else, and scales that are
 * not positive and finite, goes through the plain loops. */

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
    Bits seen = all_of(0);
    int64_t i = 0;
    for (; i + kCastLanes <= n; i += kCastLanes) {
      const Bits scaled = product(load_bits(in + i), all_of(scale));
      seen = larger(seen, without_signs(scaled));
      store_f16(halves + i, limited_to_f16(scaled));
    }
    if (largest_lane(seen) > kInfinityBits) i = 0; /* a NaN: all of it by the plain loop */
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
