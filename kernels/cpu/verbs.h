/* kernels/cpu/verbs.h: the entries of the kernels table, one source file for each group.
 *
 * What each does is defined in octavo/kernels.h; ctx is always a Context.
 */
#ifndef OCTAVO_KERNELS_CPU_VERBS_H
#define OCTAVO_KERNELS_CPU_VERBS_H

#include "octavo/kernels.h"

namespace octavo {

octavo_status quantize(void *ctx, const octavo_quantize *c);
octavo_status dequantize(void *ctx, const octavo_dequantize *c);
octavo_status compute_amax(void *ctx, const octavo_compute_amax *c);
octavo_status scale_from_amax(void *ctx, const octavo_scale_from_amax *c);
octavo_status delayed_scale_update(void *ctx, const octavo_delayed_scale_update *c);
octavo_status gemm(void *ctx, const octavo_gemm *c);
octavo_status adam_step(void *ctx, const octavo_adam_step *c);
octavo_status sum_quantized(void *ctx, const octavo_sum_quantized *c);
octavo_status sum_rows(void *ctx, const octavo_sum *c);
octavo_status sum_of_squares(void *ctx, const octavo_sum *c);
octavo_status copy(void *ctx, const octavo_copy *c);
octavo_status scale_values(void *ctx, const octavo_scale_values *c);
octavo_status prescale_update(void *ctx, const octavo_prescale_update *c);
octavo_status quantize_stats(void *ctx, const octavo_quantize_stats *c);
octavo_status prologue(void *ctx, const octavo_prologue_call *c);
octavo_status prologue_quantize(void *ctx, const octavo_prologue_call *c);
octavo_status gradient_scale(void *ctx, const octavo_gradient_scale *c);
octavo_status pack(void *ctx, const octavo_pack *c);

}  // namespace octavo

#endif
