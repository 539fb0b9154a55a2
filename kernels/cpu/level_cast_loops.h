/* kernels/cpu/level_cast_loops.h: rows to codes, kCastStep elements at a time; included by
 * level.cpp only.
 *
 * A row is cut into chunks. NaN shows in the largest magnitude that a chunk has seen (its bits are
 * above those of infinity), and then the plain loop repeats that chunk.
 */
#pragma once

#include "kernels/cpu/level_cast_codes.h"
#include "kernels/cpu/level_cast_plain.h"

#ifdef OCTAVO_CAST_VECTORS

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo

#endif
