/* kernels/cpu/prologue_loops.h: the inner loops of norms and activations that each level has.
 *
 * A row is walked in segments whose length, but for the last, is a multiple of kSumParts: so a sum
 * does not depend on where segments end.
 */
#pragma once

#include <cstdint>

namespace octavo {

/* A row sum is this many sums in ascending order, of the columns with equal remainders, that
 * total() then adds: the order of every level, whatever its vectors hold. */
constexpr int64_t kSumParts = 16;

struct PrologueLoops {
  /* parts[i % kSumParts] += values[i]. */
  void (*add_up)(const float *values, int64_t n, float *parts);
  /* The same with the squares of values[i] - shift. */
  void (*add_up_squares)(const float *values, int64_t n, float shift, float *parts);
  /* out[i] = (in[i] - shift) * factor * gamma[i] + beta[i], from left to right, each step rounded;
   * beta may be null, out may be in. */
  void (*normalize)(const float *in, int64_t n, float shift, float factor, const float *gamma,
                    const float *beta, float *out);
  /* out[i] = op(in[i]); with SWIGLU op(in[i], up[i]), else up is not looked at. out may be in. */
  void (*activate)(uint32_t op, const float *in, const float *up, int64_t n, float *out);
};

/* The sum of the parts: halves added until one is left. */
inline float total(const float *parts) {
  float sums[kSumParts];
  for (int64_t i = 0; i < kSumParts; ++i) sums[i] = parts[i];
  for (int64_t half = kSumParts / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace octavo
