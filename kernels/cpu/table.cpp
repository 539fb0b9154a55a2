/* The table of the CPU kernels, complete: no entry is null.
 *
 * workspace_bytes looks at shapes only, so hosts may ask before they allocate anything.
 */
#include "kernels/cpu/table.h"

#include "kernels/cpu/arithmetic.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

/* What all call structs begin with. */
struct CallHeader {
  uint32_t size;
  uint32_t kind;
};

octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes) {
  Check check(context_of(ctx), "workspace_bytes");
  check.not_null(call, "call");
  check.not_null(bytes, "bytes");
  if (!check.ok()) return check.status();
  *bytes = 0;
  const uint32_t kind = static_cast<const CallHeader *>(call)->kind;
  switch (kind) {
    case OCTAVO_KIND_GEMM:
      return gemm_workspace_bytes(ctx, static_cast<const octavo_gemm *>(call), bytes);
    case OCTAVO_KIND_QUANTIZE:
    case OCTAVO_KIND_DEQUANTIZE:
    case OCTAVO_KIND_SCALE_FROM_AMAX:
    case OCTAVO_KIND_COMPUTE_AMAX:
    case OCTAVO_KIND_DELAYED_SCALE_UPDATE:
    case OCTAVO_KIND_ADAM_STEP:
    case OCTAVO_KIND_SUM_QUANTIZED:
    case OCTAVO_KIND_SUM:
    case OCTAVO_KIND_COPY:
    case OCTAVO_KIND_SCALE_VALUES:
    case OCTAVO_KIND_PRESCALE_UPDATE:
    case OCTAVO_KIND_QUANTIZE_STATS:
    case OCTAVO_KIND_GRADIENT_SCALE: return OCTAVO_OK;
    case OCTAVO_KIND_PROLOGUE_CALL:
      return prologue_workspace_bytes(ctx, static_cast<const octavo_prologue_call *>(call), bytes);
    default:
      check.fail(OCTAVO_UNSUPPORTED,
                 "kind = %u; expected the kind of a call struct of octavo/kernels.h", kind);
      return check.status();
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
                                   verb<gradient_scale, octavo_gradient_scale>};

}  // namespace
}  // namespace octavo

const octavo_kernels *octavo_cpu_kernels(void) {
  return &octavo::kTable;
}
