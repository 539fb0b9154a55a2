/* kernels/cpu/cast_loops.h: the inner loops of quantize that each level has.
 *
 * A row goes from its dtype to codes in one pass, measured on the way.
 */
#ifndef OCTAVO_KERNELS_CPU_CAST_LOOPS_H
#define OCTAVO_KERNELS_CPU_CAST_LOOPS_H

#include <cstdint>

namespace octavo {

/* What is learned about values while they pass: amax ignores NaN, as bits of a float >= 0. */
struct ValueStats {
  int32_t amax_bits = 0;
  bool nonfinite = false;
};

struct CastLoops {
  /* n values of a plain `in_dtype`: out = saturating cast of fl32(in * scale) to E4M3FN or E5M2,
   * and what the values before scaling are. */
  ValueStats (*quantize)(uint32_t in_dtype, uint32_t out_dtype, const void *in, int64_t n,
                         float scale, void *out);
};

}  // namespace octavo

#endif
