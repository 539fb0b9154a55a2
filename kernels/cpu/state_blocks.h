/* kernels/cpu/state_blocks.h: reading and writing states of granularity FLAT_256 and EXPANDED_128.
 *
 * Blocks run over a dense matrix in memory order, across rows: a matrix is one row of rows * cols
 * elements here. Positions must be multiples of kSegment, which is a multiple of both block sizes.
 */
#pragma once

#include "kernels/cpu/rows.h"

namespace octavo {

/* `count` values from element `first` on, at most kSegment. `scales` is the start of all scales. */
void load_state_blocks(const Context &context, const octavo_tensor &codes, const float *scales,
                       uint32_t granularity, int64_t first, int64_t count, float *values);
/* Writes codes and scales of the blocks that begin in the range. key: of a stochastic rounding;
 * null rounds to nearest even. */
void store_state_blocks(const Context &context, const octavo_tensor &codes, float *scales,
                        uint32_t granularity, int64_t first, int64_t count, const float *values,
                        const RandomKey *key = nullptr);

/* Raises code 0 of every value above 0 to 1, the smallest code of E4M3FN, E5M2 and f16. */
void keep_positive(uint32_t dtype, const float *values, int64_t count, void *codes);

/* The verbs of kernels.h for checked calls whose scale has such a granularity. */
octavo_status quantize_state(const Context &context, const octavo_quantize &c);
octavo_status dequantize_state(const Context &context, const octavo_dequantize &c);

}  // namespace octavo
