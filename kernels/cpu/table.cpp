/* The table of the CPU kernels, complete: no entry is null.
 *
 * workspace_bytes looks at shapes only, so hosts may ask before they allocate anything.
 */
#include "kernels/cpu/table.h"

#include <type_traits>

#include "kernels/check/calls.h"
#include "kernels/check/verbs.h"
#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/verbs.h"
#include "octavo/draft/msamp.h"

namespace octavo {
namespace {

octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  const Context &context = context_of(ctx);
  const Caller caller = context.caller();
  const octavo_status status = check_workspace_bytes(caller, call, limits_of(context), bytes);
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

/* A verb under the arithmetic that it was written for, once its call has passed its check. */
template <auto kCheck, auto kVerb, typename Call>
octavo_status verb(void *ctx, const Call *c) {
  const DefaultArithmetic scope;
  const Context &context = context_of(ctx);
  octavo_status status = OCTAVO_OK;
  if constexpr (std::is_invocable_v<decltype(kCheck), Caller, const Call *>) {
    status = kCheck(context.caller(), c);
  } else {
    status = kCheck(context.caller(), c, limits_of(context));
  }
  return status == OCTAVO_OK ? kVerb(context, *c) : status;
}

constexpr octavo_adam_kernels kAdam = {
    sizeof(octavo_adam_kernels), OCTAVO_KIND_ADAM_KERNELS, verb<check_adam_step, adam_step>,
    verb<check_gradient_scale, gradient_scale>, verb<check_sum_of_squares, sum_of_squares>};
constexpr octavo_msamp_kernels kMsamp = {sizeof(octavo_msamp_kernels), OCTAVO_KIND_MSAMP_KERNELS,
                                         verb<check_sum_quantized, sum_quantized>,
                                         verb<check_scale_values, scale_values>,
                                         verb<check_prescale_update, prescale_update>};
constexpr octavo_rounding_kernels kRounding = {
    sizeof(octavo_rounding_kernels), OCTAVO_KIND_ROUNDING_KERNELS,
    verb<check_adam_rounded, adam_rounded>, verb<check_round_codes, round_codes>,
    verb<check_count, count>};
constexpr octavo_one_pass_kernels kOnePass = {sizeof(octavo_one_pass_kernels),
                                              OCTAVO_KIND_ONE_PASS_KERNELS,
                                              verb<check_adam_one_pass, adam_one_pass>};
constexpr octavo_fp4_kernels kFp4 = {sizeof(octavo_fp4_kernels), OCTAVO_KIND_FP4_KERNELS,
                                     verb<check_quantize_fp4, quantize_fp4>};

const void *get_extension(void *, octavo_str id) {
  return table_of_id(id, {{OCTAVO_ADAM_KERNELS_ID, &kAdam},
                          {OCTAVO_MSAMP_KERNELS_ID, &kMsamp},
                          {OCTAVO_ROUNDING_KERNELS_ID, &kRounding},
                          {OCTAVO_ONE_PASS_KERNELS_ID, &kOnePass},
                          {OCTAVO_FP4_KERNELS_ID, &kFp4}});
}

constexpr octavo_kernels kTable = {sizeof(octavo_kernels),
                                   OCTAVO_KIND_KERNELS,
                                   probe_device,
                                   open_device,
                                   close_device,
                                   describe,
                                   ability,
                                   workspace_bytes,
                                   verb<check_quantize, quantize>,
                                   verb<check_dequantize, dequantize>,
                                   verb<check_compute_amax, compute_amax>,
                                   verb<check_scale_from_amax, scale_from_amax>,
                                   verb<check_delayed_scale_update, delayed_scale_update>,
                                   verb<check_gemm, gemm>,
                                   verb<check_sum_rows, sum_rows>,
                                   verb<check_copy, copy>,
                                   verb<check_quantize_stats, quantize_stats>,
                                   verb<check_prologue, prologue>,
                                   verb<check_prologue_quantize, prologue_quantize>,
                                   verb<check_pack, pack>,
                                   get_extension};

}  // namespace
}  // namespace octavo

const octavo_kernels *octavo_cpu_kernels(void) {
  return &octavo::kTable;
}
