/* kernels/cpu/prologue.h: norms and activations of a range of rows, for the verbs of prologue.cpp
 * and prologue_quantize.cpp.
 */
#ifndef OCTAVO_KERNELS_CPU_PROLOGUE_H
#define OCTAVO_KERNELS_CPU_PROLOGUE_H

#include "kernels/cpu/context.h"

namespace octavo {

/* Rows [begin, end) of the prologue into rows [begin - first, end - first) of out, on the calling
 * thread, with mean and rstd of those rows. */
void prologue_rows(const Context &context, const octavo_prologue &p, int64_t begin, int64_t end,
                   int64_t first, const octavo_tensor &out);

/* All rows, on the host's threads. */
octavo_status prologue_all(const Context &context, const octavo_prologue &p,
                           const octavo_tensor &out);

}  // namespace octavo

#endif
