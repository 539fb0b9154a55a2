/* kernels/check/minor_0.h: how long each call struct was in minor 0 of the ABI.
 *
 * A struct of an older plugin may be no longer than that, and stays legal: a call is refused when
 * it is shorter, not when it is shorter than this header's struct. Lines never change. What is
 * appended to a struct later is read after OCTAVO_HAS only.
 */
#pragma once

#include "octavo/draft/fp4.h"
#include "octavo/draft/msamp.h"
#include "octavo/draft/one_pass.h"

namespace octavo {

/* The size through the last field of minor 0; a struct without a line here does not compile. */
template <typename Call>
struct Minor0;

#define OCTAVO_MINOR_0(call, last_field)                                                       \
  template <>                                                                                  \
  struct Minor0<call> {                                                                        \
    static constexpr uint32_t kSize = OCTAVO_SIZE_THROUGH(call, last_field);                   \
    static_assert(OCTAVO_ABI_MINOR > 0 || kSize + 8 > sizeof(call), "last_field is the last"); \
  }
OCTAVO_MINOR_0(octavo_ability, evidence);
OCTAVO_MINOR_0(octavo_quantize, rounding);
OCTAVO_MINOR_0(octavo_dequantize, reserved);
OCTAVO_MINOR_0(octavo_quantize_stats, workspace);
OCTAVO_MINOR_0(octavo_prologue, rstd);
OCTAVO_MINOR_0(octavo_prologue_call, workspace);
OCTAVO_MINOR_0(octavo_scale_from_amax, kept);
OCTAVO_MINOR_0(octavo_compute_amax, nonfinite);
OCTAVO_MINOR_0(octavo_delayed_scale_update, reserved);
OCTAVO_MINOR_0(octavo_gemm, layout);
OCTAVO_MINOR_0(octavo_adam_step, flags);
OCTAVO_MINOR_0(octavo_sum_quantized, workspace);
OCTAVO_MINOR_0(octavo_sum, workspace);
OCTAVO_MINOR_0(octavo_copy, bytes);
OCTAVO_MINOR_0(octavo_scale_values, reserved);
OCTAVO_MINOR_0(octavo_prescale_update, high);
OCTAVO_MINOR_0(octavo_adam_rounded, reserved);
OCTAVO_MINOR_0(octavo_adam_one_pass, amax);
OCTAVO_MINOR_0(octavo_quantize_fp4, reserved);
OCTAVO_MINOR_0(octavo_count, skip);
OCTAVO_MINOR_0(octavo_round_codes, reserved);
OCTAVO_MINOR_0(octavo_gradient_scale, max_norm);
OCTAVO_MINOR_0(octavo_pack, out);
#undef OCTAVO_MINOR_0

}  // namespace octavo
