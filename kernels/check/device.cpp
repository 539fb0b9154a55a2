/* What describe and workspace_bytes refuse of any call. */
#include <cstring>

#include "kernels/check/calls.h"
#include "kernels/check/verbs.h"

namespace octavo {

octavo_status begin_describe(const Caller &caller, const char *id, octavo_kernels_caps *out) {
  if (out == nullptr || !OCTAVO_HAS(out, octavo_kernels_caps, alignment)) {
    return report_error(
        caller, OCTAVO_INVALID, "describe: caps are null or have %u bytes; expected at least %u",
        out == nullptr ? 0u : out->size, OCTAVO_SIZE_THROUGH(octavo_kernels_caps, alignment));
  }
  out->kind = OCTAVO_KIND_KERNELS_CAPS;
  out->id = {id, std::strlen(id)};
  return OCTAVO_OK;
}

octavo_status check_workspace_bytes(const Caller &caller, const void *call,
                                    const DeviceLimits &limits, uint64_t *bytes) {
  Check check(caller, "workspace_bytes");
  check.not_null(call, "call");
  check.not_null(bytes, "bytes");
  if (!check.ok()) return check.status();
  *bytes = 0;
  const uint32_t kind = kind_of(call);
  switch (kind) {
    case OCTAVO_KIND_QUANTIZE:
    case OCTAVO_KIND_DEQUANTIZE:
    case OCTAVO_KIND_SCALE_FROM_AMAX:
    case OCTAVO_KIND_COMPUTE_AMAX:
    case OCTAVO_KIND_DELAYED_SCALE_UPDATE:
    case OCTAVO_KIND_GEMM:
    case OCTAVO_KIND_ADAM_STEP:
    case OCTAVO_KIND_SUM_QUANTIZED:
    case OCTAVO_KIND_SUM:
    case OCTAVO_KIND_COPY:
    case OCTAVO_KIND_SCALE_VALUES:
    case OCTAVO_KIND_QUANTIZE_STATS:
    case OCTAVO_KIND_PROLOGUE_CALL:
    case OCTAVO_KIND_GRADIENT_SCALE:
    case OCTAVO_KIND_PACK:
    case OCTAVO_KIND_PRESCALE_UPDATE:
    case OCTAVO_KIND_ADAM_ROUNDED:
    case OCTAVO_KIND_ADAM_ONE_PASS:
    case OCTAVO_KIND_ROUND_CODES:
    case OCTAVO_KIND_COUNT: return OCTAVO_OK;
    case OCTAVO_KIND_QUANTIZE_FP4:
      if (limits.takes_fp4) return OCTAVO_OK;
      [[fallthrough]];
    default:
      check.fail(OCTAVO_UNSUPPORTED,
                 "kind = %u; expected the kind of a call struct of octavo/kernels.h", kind);
      return check.status();
  }
}

}  // namespace octavo
