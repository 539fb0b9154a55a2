// What every kernels plugin must keep, as far as it goes: each check on one device.
#pragma once

#include <span>

#include "trial.h"

namespace octavo::conformance::kernels {

// The kinds of calls that `ability` is asked about.
inline constexpr uint32_t kCalls[] = {OCTAVO_KIND_QUANTIZE,
                                      OCTAVO_KIND_DEQUANTIZE,
                                      OCTAVO_KIND_COMPUTE_AMAX,
                                      OCTAVO_KIND_SCALE_FROM_AMAX,
                                      OCTAVO_KIND_DELAYED_SCALE_UPDATE,
                                      OCTAVO_KIND_GEMM,
                                      OCTAVO_KIND_SUM,
                                      OCTAVO_KIND_COPY,
                                      OCTAVO_KIND_QUANTIZE_STATS,
                                      OCTAVO_KIND_PROLOGUE_CALL,
                                      OCTAVO_KIND_PACK,
                                      OCTAVO_KIND_ADAM_STEP,
                                      OCTAVO_KIND_GRADIENT_SCALE,
                                      OCTAVO_KIND_SUM_QUANTIZED,
                                      OCTAVO_KIND_SCALE_VALUES,
                                      OCTAVO_KIND_PRESCALE_UPDATE,
                                      OCTAVO_KIND_ADAM_ROUNDED,
                                      OCTAVO_KIND_ROUND_CODES,
                                      OCTAVO_KIND_COUNT,
                                      OCTAVO_KIND_ADAM_ONE_PASS,
                                      OCTAVO_KIND_QUANTIZE_FP4};

struct Check {
  const char *name;
  const char *meaning;  // one sentence
  const char *clauses;  // of docs/abi.md
  void (*run)(const Bench &bench);
};

std::span<const Check> checks();

void check_table(const Bench &bench);
void check_layer(const Bench &bench);
void check_memory(const Bench &bench);
void check_ability(const Bench &bench);
void check_workspace(const Bench &bench);
void check_order(const Bench &bench);
void check_threads(const Bench &bench);
void check_streams(const Bench &bench);
void check_capture(const Bench &bench);
void check_current_device(const Bench &bench);
void check_quantize(const Bench &bench);
void check_quantize_nonfinite(const Bench &bench);
void check_quantize_delayed(const Bench &bench);
void check_quantize_rows(const Bench &bench);
void check_quantize_blocks(const Bench &bench);
void check_quantize_states(const Bench &bench);
void check_quantize_special(const Bench &bench);
void check_dequantize(const Bench &bench);
void check_fp4(const Bench &bench);
void check_amax(const Bench &bench);
void check_scale(const Bench &bench);
void check_history(const Bench &bench);
void check_gemm(const Bench &bench);
void check_gemm_plain(const Bench &bench);
void check_gemm_rows(const Bench &bench);
void check_gemm_blocks(const Bench &bench);
void check_gemm_fp4(const Bench &bench);
void check_pack(const Bench &bench);
void check_sum_rows(const Bench &bench);
void check_squares(const Bench &bench);
void check_copy(const Bench &bench);
void check_stats(const Bench &bench);
void check_prologue(const Bench &bench);
void check_prologue_quantize(const Bench &bench);
void check_adam(const Bench &bench);
void check_msamp(const Bench &bench);
void check_rounding(const Bench &bench);
void check_one_pass(const Bench &bench);

}  // namespace octavo::conformance::kernels
