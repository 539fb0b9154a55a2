/* kernels/cpu/quantize.h: quantize without its checks, for verbs that compute their input first. */
#ifndef OCTAVO_KERNELS_CPU_QUANTIZE_H
#define OCTAVO_KERNELS_CPU_QUANTIZE_H

#include "kernels/cpu/context.h"

namespace octavo {

/* The work on a call that was checked. */
octavo_status quantize_checked(const Context &context, const octavo_quantize &c);

}  // namespace octavo

#endif
