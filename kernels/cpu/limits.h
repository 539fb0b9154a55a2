/* kernels/cpu/limits.h: what the checks of kernels/check have to know of the CPU kernels. */
#ifndef OCTAVO_KERNELS_CPU_LIMITS_H
#define OCTAVO_KERNELS_CPU_LIMITS_H

#include "kernels/check/verbs.h"
#include "kernels/cpu/context.h"

namespace octavo {

DeviceLimits limits_of(const Context &context);

}  // namespace octavo

#endif
