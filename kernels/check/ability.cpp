/* Which formats and flags each call takes, the same on every device: what the checks refuse, and
 * what ability answers.
 */
#include <cstring>

#include "kernels/check/scales.h"
#include "kernels/check/verbs.h"

namespace octavo {
namespace {

/* Null: the kernels can do it. Otherwise the evidence. */
using Reason = const char *;

constexpr Reason kNoFormat = "no such combination of dtype and granularity";

bool fits(const DeviceLimits &limits, uint32_t call, uint32_t dtype, uint32_t granularity) {
  return is_dtype(dtype, dtypes_of(call, granularity)) &&
         (limits.takes_fp4 || !is_fp4_granularity(granularity));
}

bool is_plain(uint32_t dtype, uint32_t granularity) {
  return is_dtype(dtype, Dtypes::kPlain) && granularity == OCTAVO_PER_TENSOR;
}

Reason reason_against_gemm(const octavo_ability &q, const DeviceLimits &limits) {
  if (!fits(limits, q.call, q.dtype, q.granularity) ||
      !fits(limits, q.call, q.b_dtype, q.b_granularity) ||
      is_fp4_granularity(q.granularity) != is_fp4_granularity(q.b_granularity))
    return kNoFormat;
  if (is_fp4_granularity(q.granularity))
    return q.flags == 0 ? nullptr : "codes of four bits need K contiguous and in their own order";
  const bool a_blocks = is_block_granularity(q.granularity);
  const bool b_blocks = is_block_granularity(q.b_granularity);
  if (a_blocks != b_blocks) return "blocks are needed on both operands";
  if (a_blocks && block_cols(q.granularity) != block_cols(q.b_granularity))
    return "blocks of both operands need the same length along K";
  const bool turns_codes =
      ((q.flags & OCTAVO_GEMM_A_KM) != 0 && !is_plain(q.dtype, q.granularity)) ||
      ((q.flags & OCTAVO_GEMM_B_KN) != 0 && !is_plain(q.b_dtype, q.b_granularity));
  if (turns_codes) return "codes need K contiguous";
  if ((q.flags & OCTAVO_GEMM_B_PACKED) == 0) return nullptr;
  if (limits.pack_rows == 0) return "these kernels have no panel order, see pack_rows";
  const bool is_packable = is_dtype(q.b_dtype, Dtypes::kFloat8) &&
                           (q.dtype == OCTAVO_BF16 || is_dtype(q.dtype, Dtypes::kFloat8));
  return is_packable ? nullptr : "packed codes are multiplied by codes or bf16";
}

Reason reason_against(const octavo_ability &q, const DeviceLimits &limits) {
  if ((q.flags & ~flags_of(q.call)) != 0) return "the call has no such flags";
  switch (q.call) {
    case OCTAVO_KIND_GEMM: return reason_against_gemm(q, limits);
    case OCTAVO_KIND_PACK:
      if (limits.pack_rows == 0) return "these kernels have no panel order, see pack_rows";
      break;
    case OCTAVO_KIND_QUANTIZE:
      if (is_fp4_granularity(q.granularity) && q.flags != 0) return "blocks of 16 take no flags";
      break;
    case OCTAVO_KIND_ADAM_ROUNDED:
    case OCTAVO_KIND_ADAM_ONE_PASS:
      /* The call itself, or a format of its moments as for adam_step. */
      if (q.dtype == 0) return nullptr;
      break;
    case OCTAVO_KIND_ADAM_STEP:
    case OCTAVO_KIND_DEQUANTIZE:
    case OCTAVO_KIND_QUANTIZE_FP4:
    case OCTAVO_KIND_QUANTIZE_STATS:
    case OCTAVO_KIND_ROUND_CODES:
    case OCTAVO_KIND_SUM_QUANTIZED:
    case OCTAVO_KIND_COMPUTE_AMAX:
    case OCTAVO_KIND_SUM:
    case OCTAVO_KIND_PROLOGUE_CALL: break;
    case OCTAVO_KIND_SCALE_FROM_AMAX:
    case OCTAVO_KIND_DELAYED_SCALE_UPDATE:
    case OCTAVO_KIND_COPY:
    case OCTAVO_KIND_SCALE_VALUES:
    case OCTAVO_KIND_GRADIENT_SCALE:
    case OCTAVO_KIND_COUNT:
    case OCTAVO_KIND_PRESCALE_UPDATE: return nullptr;
    default: return "no such call";
  }
  return fits(limits, q.call, q.dtype, q.granularity) ? nullptr : kNoFormat;
}

}  // namespace

Dtypes dtypes_of(uint32_t call, uint32_t granularity) {
  const bool is_tensor = granularity == OCTAVO_PER_TENSOR;
  const bool is_row = granularity == OCTAVO_PER_ROW;
  const bool is_block = is_block_granularity(granularity);
  const bool is_state = is_state_granularity(granularity);
  const bool is_fp4 = is_fp4_granularity(granularity);
  switch (call) {
    case OCTAVO_KIND_QUANTIZE:
      if (is_tensor || is_row) return Dtypes::kQuantized;
      if (is_block) return Dtypes::kFloat8;
      if (is_state) return Dtypes::kState;
      return is_fp4 ? Dtypes::kFp4 : Dtypes::kNone;
    case OCTAVO_KIND_DEQUANTIZE:
      if (is_tensor) return Dtypes::kAny;
      return dtypes_of(OCTAVO_KIND_QUANTIZE, granularity);
    case OCTAVO_KIND_QUANTIZE_FP4: return is_fp4 ? Dtypes::kFp4 : Dtypes::kNone;
    case OCTAVO_KIND_QUANTIZE_STATS:
      if (is_tensor || is_row) return Dtypes::kQuantized;
      return is_block ? Dtypes::kFloat8 : Dtypes::kNone;
    case OCTAVO_KIND_ROUND_CODES:
      return is_tensor || is_row || is_block ? Dtypes::kFloat8 : Dtypes::kNone;
    case OCTAVO_KIND_GEMM:
      if (is_tensor || is_row) return Dtypes::kAny;
      if (is_block) return Dtypes::kFloat8;
      return is_fp4 ? Dtypes::kFp4 : Dtypes::kNone;
    case OCTAVO_KIND_ADAM_STEP:
    case OCTAVO_KIND_ADAM_ROUNDED:
    case OCTAVO_KIND_ADAM_ONE_PASS:
      if (is_tensor) return Dtypes::kAny;
      return is_state ? Dtypes::kState : Dtypes::kNone;
    case OCTAVO_KIND_PACK: return Dtypes::kFloat8;
    case OCTAVO_KIND_SUM_QUANTIZED: return is_tensor ? Dtypes::kFloat8 : Dtypes::kNone;
    case OCTAVO_KIND_COMPUTE_AMAX:
    case OCTAVO_KIND_SUM: return is_tensor ? Dtypes::kAny : Dtypes::kNone;
    case OCTAVO_KIND_PROLOGUE_CALL: return is_tensor ? Dtypes::kPlain : Dtypes::kNone;
    default: return Dtypes::kNone;
  }
}

uint32_t flags_of(uint32_t call) {
  switch (call) {
    case OCTAVO_KIND_QUANTIZE: return OCTAVO_QUANTIZE_KEEP_POSITIVE;
    case OCTAVO_KIND_QUANTIZE_FP4: return OCTAVO_FP4_HADAMARD | OCTAVO_FP4_STOCHASTIC;
    case OCTAVO_KIND_GEMM: return OCTAVO_GEMM_A_KM | OCTAVO_GEMM_B_KN | OCTAVO_GEMM_B_PACKED;
    case OCTAVO_KIND_ADAM_STEP:
    case OCTAVO_KIND_ADAM_ROUNDED:
    case OCTAVO_KIND_ADAM_ONE_PASS: return OCTAVO_ADAM_KEEP_POSITIVE;
    case OCTAVO_KIND_DELAYED_SCALE_UPDATE:
      return OCTAVO_HISTORY_SKIP_ZERO | OCTAVO_HISTORY_DROP_NONFINITE | OCTAVO_HISTORY_NAN_KEEPS |
             OCTAVO_HISTORY_COUNT_FROM_ONE;
    default: return 0;
  }
}

octavo_status begin_ability(const Caller &caller, const DeviceLimits &limits,
                            octavo_ability *question) {
  Check check(caller, "ability");
  if (!check.call(question)) return check.status();
  const Reason reason = reason_against(*question, limits);
  question->decision = reason == nullptr ? OCTAVO_ACCEPT : OCTAVO_DECLINE;
  question->scale_order = OCTAVO_SCALES_ROW_MAJOR;
  question->evidence = {reason, reason == nullptr ? 0 : std::strlen(reason)};
  return OCTAVO_OK;
}

}  // namespace octavo
