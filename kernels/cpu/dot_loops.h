/* kernels/cpu/dot_loops.h: the inner loops of gemm over pairs of bf16, for levels that have them.
 */
#ifndef OCTAVO_KERNELS_CPU_DOT_LOOPS_H
#define OCTAVO_KERNELS_CPU_DOT_LOOPS_H

#include <cstdint>

namespace octavo {

struct DotLoops {
  /* Whether this CPU's dot product is two fused multiply-adds, the odd element of a pair first. */
  bool (*is_chain)();
};

}  // namespace octavo

#endif
