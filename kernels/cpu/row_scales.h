/* kernels/cpu/row_scales.h: OCTAVO_PER_ROW, one f32 for every row of a tensor.
 *
 * The scales of a tensor [rows, cols] are a matrix [rows, 1]: scale.stride is 1 where they lie side
 * by side, and may be larger.
 */
#ifndef OCTAVO_KERNELS_CPU_ROW_SCALES_H
#define OCTAVO_KERNELS_CPU_ROW_SCALES_H

#include "kernels/cpu/rows.h"

namespace octavo {

/* The multiplier of a row; s has one for each. */
inline float &row_scale_inv(const octavo_scale &s, int64_t row) {
  return static_cast<float *>(s.data)[row * s.stride];
}

/* quantize of a checked call: each row of out, and of out_t, has the scale of its own amax. */
octavo_status quantize_rows(const Context &context, const octavo_quantize &c);

}  // namespace octavo

#endif
