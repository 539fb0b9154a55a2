// The precision of the host's own linears, and rounding to bfloat16.
#ifndef TRAIN_GPT_PRECISION_H
#define TRAIN_GPT_PRECISION_H

#include <bit>
#include <cstdint>

#include "threads.h"

namespace gpt {

enum class Precision { kFp32, kBf16 };

// To the nearest bfloat16, ties to even; NaN stays NaN.
inline float round_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return std::bit_cast<float>(bits | 0x00400000u);
  return std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u);
}

// y = x rounded to bfloat16; y may be x.
inline void round_bf16(const Threads &threads, const float *x, float *y, int64_t count) {
  threads.for_ranges(count, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = round_bf16(x[i]);
  });
}

}  // namespace gpt

#endif
