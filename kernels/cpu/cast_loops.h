/* kernels/cpu/cast_loops.h: the inner loops of quantize and dequantize that each level has.
 *
 * A row goes from its dtype to codes in one pass, measured on the way. `in_dtype` is f32, bf16,
 * f16, E4M3FN or E5M2 where nothing else is said; no pointer needs to be aligned beyond its
 * element. All levels give the bits of kernels/format.
 */
#pragma once

#include <cstdint>

namespace octavo {

/* What is learned about values while they pass: amax ignores NaN, as bits of a float >= 0. */
struct ValueStats {
  int32_t amax_bits = 0;
  bool nonfinite = false;
};

struct CastLoops {
  /* n values: out = saturating cast of fl32(in * scale) to E4M3FN, E5M2 or scaled f16, and what the
   * values before scaling are. `scale` may be any float. */
  ValueStats (*quantize)(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                         float scale, void *out);
  /* The same past the caches, for outputs that no cache could keep. */
  ValueStats (*quantize_past_caches)(uint32_t in_dtype, uint32_t out_dtype, const void *in,
                                     int64_t n, float scale, void *out);
  /* out[i] = cast of fl32(in[i] * scales[i]), without statistics. */
  void (*quantize_each)(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                        const float *scales, void *out);
  /* out[i] = cast of fl32(in[i] * scales[i / length]) to E4M3FN or E5M2; length is 32 or 128. */
  void (*quantize_blocks)(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                          int64_t length, const float *scales, void *out);
  ValueStats (*measure)(uint32_t in_dtype, const void *in, int64_t n);
  /* amax_bits[i / length] = the amax of these elements; what all of them are. */
  ValueStats (*measure_blocks)(uint32_t in_dtype, const void *in, int64_t n, int64_t length,
                               int32_t *amax_bits);
  /* amax_bits[i] = max(amax_bits[i], bits of |in[i]|), NaN ignored. */
  void (*measure_each)(uint32_t in_dtype, const void *in, int64_t n, int32_t *amax_bits);
  /* out[col][row] = in[row][col] for bytes, both with a stride in bytes; past the caches when
   * `streams`. */
  void (*transpose)(const uint8_t *in, int64_t in_stride, int64_t rows, int64_t cols, uint8_t *out,
                    int64_t out_stride, bool streams);
  /* out[i] = table[codes[i]], where table[code + 128] is table[code] with the highest bit flipped;
   * 256 entries. Null: the level has nothing faster than load and store. */
  void (*look_up)(const uint16_t *table, const uint8_t *codes, int64_t n, uint16_t *out,
                  bool streams);
};

}  // namespace octavo
