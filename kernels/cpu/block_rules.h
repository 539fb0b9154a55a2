/* kernels/cpu/block_rules.h: amaxes of blocks to their scales, many blocks at a time. */
#pragma once

#include "octavo/kernels.h"

namespace octavo {

/* The arguments of block_scale in kernels/format/scale_rules.h but for the amax. */
struct BlockRule {
  uint32_t rule;
  float format_max;
  float eps;
  float largest; /* largest_scale_of the input's dtype */
};

/* Stores the scale_inv of `count` blocks in the memory of s from element `index` on, `step` apart;
 * gives their scales, which multiply before the cast. amax_bits: bits of a float >= 0. */
void store_scales(const BlockRule &r, const int32_t *amax_bits, int64_t count,
                  const octavo_scale &s, int64_t index, int64_t step, float *scales);

}  // namespace octavo
