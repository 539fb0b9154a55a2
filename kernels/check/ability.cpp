/* ability, as far as it is the same on every device: which formats each call takes. */
#include <cstring>

#include "kernels/check/scales.h"
#include "kernels/check/verbs.h"

namespace octavo {
namespace {

/* Null: the kernels can do it. Otherwise the evidence. */
using Reason = const char *;

constexpr Reason kNoFormat = "no such combination of dtype and granularity";

bool is_plain(uint32_t dtype, uint32_t granularity) {
  return is_dtype(dtype, Dtypes::kPlain) && granularity == OCTAVO_PER_TENSOR;
}

/* Codes with scales that a product can read. */
bool is_operand(uint32_t dtype, uint32_t granularity) {
  if (is_block_granularity(granularity)) return is_dtype(dtype, Dtypes::kFloat8);
  return (granularity == OCTAVO_PER_TENSOR || granularity == OCTAVO_PER_ROW) &&
         is_dtype(dtype, Dtypes::kAny);
}

bool is_state(uint32_t dtype, uint32_t granularity) {
  return is_state_granularity(granularity) && dtype == OCTAVO_E4M3FN;
}

/* Codes of four bits, which have scales of blocks of 16 and no others. */
bool is_fp4(uint32_t dtype, uint32_t granularity, const DeviceLimits &limits) {
  return limits.takes_fp4 && dtype == OCTAVO_E2M1 && is_fp4_granularity(granularity);
}

Reason reason_against_quantize(const octavo_ability &q, const DeviceLimits &limits) {
  const bool is_code = is_dtype(q.dtype, Dtypes::kQuantized) &&
                       (q.granularity == OCTAVO_PER_TENSOR || q.granularity == OCTAVO_PER_ROW);
  const bool is_block = is_block_granularity(q.granularity) && is_dtype(q.dtype, Dtypes::kFloat8);
  return is_code || is_block || is_state(q.dtype, q.granularity) ||
                 is_fp4(q.dtype, q.granularity, limits)
             ? nullptr
             : kNoFormat;
}

Reason reason_against_gemm(const octavo_ability &q, const DeviceLimits &limits) {
  if (is_fp4(q.dtype, q.granularity, limits) && is_fp4(q.b_dtype, q.b_granularity, limits))
    return q.flags == 0 ? nullptr : "codes of four bits need K contiguous and in their own order";
  if (!is_operand(q.dtype, q.granularity) || !is_operand(q.b_dtype, q.b_granularity))
    return kNoFormat;
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
  switch (q.call) {
    case OCTAVO_KIND_QUANTIZE: return reason_against_quantize(q, limits);
    case OCTAVO_KIND_GEMM: return reason_against_gemm(q, limits);
    case OCTAVO_KIND_DEQUANTIZE:
      return (is_operand(q.dtype, q.granularity) &&
              (q.granularity != OCTAVO_PER_ROW || is_dtype(q.dtype, Dtypes::kQuantized))) ||
                     is_state(q.dtype, q.granularity) || is_fp4(q.dtype, q.granularity, limits)
                 ? nullptr
                 : kNoFormat;
    case OCTAVO_KIND_QUANTIZE_FP4:
      return is_fp4(q.dtype, q.granularity, limits) ? nullptr : kNoFormat;
    case OCTAVO_KIND_ROUND_CODES:
      return is_operand(q.dtype, q.granularity) && is_dtype(q.dtype, Dtypes::kFloat8) ? nullptr
                                                                                      : kNoFormat;
    case OCTAVO_KIND_ADAM_ROUNDED:
    case OCTAVO_KIND_ADAM_ONE_PASS:
      /* The call itself, or a format of its moments as for adam_step. */
      if (q.dtype == 0) return nullptr;
      [[fallthrough]];
    case OCTAVO_KIND_ADAM_STEP:
      return (is_dtype(q.dtype, Dtypes::kAny) && q.granularity == OCTAVO_PER_TENSOR) ||
                     is_state(q.dtype, q.granularity)
                 ? nullptr
                 : kNoFormat;
    case OCTAVO_KIND_QUANTIZE_STATS:
      return is_operand(q.dtype, q.granularity) && q.granularity != OCTAVO_PER_ROW &&
                     !is_dtype(q.dtype, Dtypes::kPlain)
                 ? nullptr
                 : kNoFormat;
    case OCTAVO_KIND_SUM_QUANTIZED:
      return is_dtype(q.dtype, Dtypes::kFloat8) && q.granularity == OCTAVO_PER_TENSOR ? nullptr
                                                                                      : kNoFormat;
    case OCTAVO_KIND_PACK:
      return limits.pack_rows == 0 ? "these kernels have no panel order, see pack_rows"
             : is_dtype(q.dtype, Dtypes::kFloat8) ? nullptr
                                                  : kNoFormat;
    case OCTAVO_KIND_COMPUTE_AMAX:
    case OCTAVO_KIND_SUM:
      return is_dtype(q.dtype, Dtypes::kAny) && q.granularity == OCTAVO_PER_TENSOR ? nullptr
                                                                                   : kNoFormat;
    case OCTAVO_KIND_PROLOGUE_CALL: return is_plain(q.dtype, q.granularity) ? nullptr : kNoFormat;
    case OCTAVO_KIND_SCALE_FROM_AMAX:
    case OCTAVO_KIND_DELAYED_SCALE_UPDATE:
    case OCTAVO_KIND_COPY:
    case OCTAVO_KIND_SCALE_VALUES:
    case OCTAVO_KIND_GRADIENT_SCALE:
    case OCTAVO_KIND_COUNT:
    case OCTAVO_KIND_PRESCALE_UPDATE: return nullptr;
    default: return "no such call";
  }
}

}  // namespace

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
