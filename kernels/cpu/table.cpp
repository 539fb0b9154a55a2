/* The table of the CPU kernels, complete: no entry is null.
 *
 * workspace_bytes looks at shapes only, so hosts may ask before they allocate anything.
 */
#include "kernels/cpu/table.h"

#include "kernels/check/calls.h"
#include "kernels/check/verbs.h"
#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/limits.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  const Context &context = context_of(ctx);
  const Caller caller = context.caller();
  const octavo_status status = check_workspace_bytes(caller, call, bytes);
  if (status != OCTAVO_OK) return status;
  switch (kind_of(call)) {
    case OCTAVO_KIND_GEMM:
      return check_gemm_workspace(caller, static_cast<const octavo_gemm *>(call),
                                  limits_of(context), bytes);
    case OCTAVO_KIND_PROLOGUE_CALL:
      return check_prologue_workspace(caller, static_cast<const octavo_prologue_call *>(call),
                                      limits_of(context), bytes);
    default: return OCTAVO_OK; /* no other verb needs any */
  }
}

/* A verb under the arithmetic that it was written for. */
template <auto kVerb, typename Call>
octavo_status verb(void *ctx, const Call *c) {
  const DefaultArithmetic scope;
  return kVerb(ctx, c);
}

constexpr octavo_kernels kTable = {sizeof(octavo_kernels),
                                   OCTAVO_KIND_KERNELS,
                                   probe_device,
                                   open_device,
                                   close_device,
                                   describe,
                                   workspace_bytes,
                                   verb<quantize, octavo_quantize>,
                                   verb<dequantize, octavo_dequantize>,
                                   verb<compute_amax, octavo_compute_amax>,
                                   verb<scale_from_amax, octavo_scale_from_amax>,
                                   verb<delayed_scale_update, octavo_delayed_scale_update>,
                                   verb<gemm, octavo_gemm>,
                                   verb<adam_step, octavo_adam_step>,
                                   verb<sum_quantized, octavo_sum_quantized>,
                                   verb<sum_rows, octavo_sum>,
                                   verb<sum_of_squares, octavo_sum>,
                                   verb<copy, octavo_copy>,
                                   verb<scale_values, octavo_scale_values>,
                                   verb<prescale_update, octavo_prescale_update>,
                                   verb<quantize_stats, octavo_quantize_stats>,
                                   verb<prologue, octavo_prologue_call>,
                                   verb<prologue_quantize, octavo_prologue_call>,
                                   verb<gradient_scale, octavo_gradient_scale>,
                                   verb<pack, octavo_pack>};

}  // namespace
}  // namespace octavo

const octavo_kernels *octavo_cpu_kernels(void) {
  return &octavo::kTable;
}
