/* The table of the CPU kernels, complete: no entry is null.
 *
 * workspace_bytes looks at shapes only, so hosts may ask before they allocate anything.
 */
#include "kernels/cpu/table.h"

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

constexpr octavo_kernels kTable = {sizeof(octavo_kernels),
                                   OCTAVO_KIND_KERNELS,
                                   probe_device,
                                   open_device,
                                   close_device,
                                   describe,
                                   workspace_bytes,
                                   quantize,
                                   dequantize,
                                   compute_amax,
                                   scale_from_amax,
                                   delayed_scale_update,
                                   gemm,
                                   adam_step,
                                   sum_quantized,
                                   sum_rows,
                                   sum_of_squares,
                                   copy,
                                   scale_values,
                                   prescale_update,
                                   quantize_stats,
                                   prologue,
                                   prologue_quantize,
                                   gradient_scale};

}  // namespace
}  // namespace octavo

const octavo_kernels *octavo_cpu_kernels(void) {
  return &octavo::kTable;
}
