/* kernels/cpu/update_loops.h: the inner loops of optimizer steps and gradient sums that each level
 * has.
 */
#ifndef OCTAVO_KERNELS_CPU_UPDATE_LOOPS_H
#define OCTAVO_KERNELS_CPU_UPDATE_LOOPS_H

namespace octavo {

struct UpdateLoops {};

}  // namespace octavo

#endif
