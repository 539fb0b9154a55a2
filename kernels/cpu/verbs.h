/* kernels/cpu/verbs.h: the entries of the kernels table, one source file for each group.
 *
 * What each does is defined in octavo/kernels.h; table.cpp has checked the call.
 */
#pragma once

#include "kernels/cpu/context.h"
#include "octavo/draft/fp4.h"
#include "octavo/draft/msamp.h"
#include "octavo/draft/one_pass.h"

namespace octavo {

octavo_status quantize(const Context &context, const octavo_quantize &c);
octavo_status dequantize(const Context &context, const octavo_dequantize &c);
octavo_status compute_amax(const Context &context, const octavo_compute_amax &c);
octavo_status scale_from_amax(const Context &context, const octavo_scale_from_amax &c);
octavo_status delayed_scale_update(const Context &context, const octavo_delayed_scale_update &c);
octavo_status gemm(const Context &context, const octavo_gemm &c);
octavo_status adam_step(const Context &context, const octavo_adam_step &c);
octavo_status adam_rounded(const Context &context, const octavo_adam_rounded &c);
octavo_status adam_one_pass(const Context &context, const octavo_adam_one_pass &c);
octavo_status sum_quantized(const Context &context, const octavo_sum_quantized &c);
octavo_status sum_rows(const Context &context, const octavo_sum &c);
octavo_status sum_of_squares(const Context &context, const octavo_sum &c);
octavo_status copy(const Context &context, const octavo_copy &c);
octavo_status scale_values(const Context &context, const octavo_scale_values &c);
octavo_status prescale_update(const Context &context, const octavo_prescale_update &c);
octavo_status quantize_fp4(const Context &context, const octavo_quantize_fp4 &c);
octavo_status round_codes(const Context &context, const octavo_round_codes &c);
octavo_status count(const Context &context, const octavo_count &c);
octavo_status quantize_stats(const Context &context, const octavo_quantize_stats &c);
octavo_status prologue(const Context &context, const octavo_prologue_call &c);
octavo_status prologue_quantize(const Context &context, const octavo_prologue_call &c);
octavo_status gradient_scale(const Context &context, const octavo_gradient_scale &c);
octavo_status pack(const Context &context, const octavo_pack &c);

/* The part that prologue and prologue_quantize share: rows [begin, end) of the prologue into rows
 * [begin - first, end - first) of out, on the calling thread, with mean and rstd of those rows. */
void prologue_rows(const Context &context, const octavo_prologue &p, int64_t begin, int64_t end,
                   int64_t first, const octavo_tensor &out);

/* All rows, on the host's threads. */
octavo_status prologue_all(const Context &context, const octavo_prologue &p,
                           const octavo_tensor &out);

}  // namespace octavo
