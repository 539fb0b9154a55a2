// The list, in the order in which an author meets them.
#include "checks.h"

namespace octavo::conformance::kernels {

std::span<const Check> checks() {
  static constexpr Check kChecks[] = {
      {"kernels.table", "Devices are found, opened and described; unknown questions are declined.",
       "K1", check_table},
      {"kernels.layer", "A layer passes on what is not its own, and its own calls stay in bounds.",
       "K10", check_layer},
      {"kernels.memory", "octavo.memory/1 allocates aligned memory and copies in every direction.",
       "K2", check_memory},
      {"kernels.ability", "ability answers every question and promises no call that is missing.",
       "K3", check_ability},
      {"kernels.workspace", "workspace_bytes grows with the sizes, affine over multiples of 256.",
       "K4", check_workspace},
      {"kernels.order", "Queued calls follow each other, and copies wait for them.", "K7",
       check_order},
      {"kernels.threads", "Threads change no bit of a cast.", "K8", check_threads},
      {"kernels.copy", "copy copies and clears bytes at any address.", "K3 K5 K6", check_copy},
      {"kernels.quantize", "Casts with one scale: roundings, rules, outputs, amax.", "K3 K5 K6",
       check_quantize},
      {"kernels.quantize.nonfinite", "Inf saturates, NaN stays NaN, and both are reported.",
       "K3 K5 K6", check_quantize_nonfinite},
      {"kernels.quantize.delayed", "counter and window choose the scale.", "K3 K5 K6",
       check_quantize_delayed},
      {"kernels.quantize.rows", "Casts with scales of rows.", "K3 K5 K6", check_quantize_rows},
      {"kernels.quantize.blocks", "Casts with scales of blocks of 128 and 32.", "K3 K5 K6",
       check_quantize_blocks},
      {"kernels.quantize.states", "Casts with scales of states: groups of 256, expanded ones.",
       "K3 K5 K6", check_quantize_states},
      {"kernels.dequantize", "Codes become values, in place and added as well.", "K3 K5 K6",
       check_dequantize},
      {"kernels.amax", "compute_amax ignores NaN and reports it.", "K3 K5 K6", check_amax},
      {"kernels.scale", "scale_from_amax follows its rule and keeps scales.", "K3 K5 K6",
       check_scale},
      {"kernels.history", "delayed_scale_update rolls its history.", "K3 K5 K6", check_history},
      {"kernels.gemm", "Products of codes with one scale.", "K3 K5 K6 K9", check_gemm},
      {"kernels.gemm.plain", "Products of plain operands in every layout.", "K3 K5 K6 K9",
       check_gemm_plain},
      {"kernels.gemm.rows", "Products of codes with scales of rows.", "K3 K5 K6 K9",
       check_gemm_rows},
      {"kernels.gemm.blocks", "Products of codes with scales of blocks.", "K3 K5 K6 K9",
       check_gemm_blocks},
      {"kernels.pack", "A product with packed codes has the bits of one without.", "K3 K5 K6",
       check_pack},
      {"kernels.sum_rows", "Sums of columns, in the order of the contract.", "K3 K5 K6",
       check_sum_rows},
      {"kernels.sum_of_squares", "Sums of squares (provisional).", "K3 K5 K6", check_squares},
      {"kernels.stats", "quantize_stats counts what saturates and what becomes 0.", "K3 K5 K6",
       check_stats},
      {"kernels.prologue", "Norms and activations.", "K3 K5 K6", check_prologue},
      {"kernels.prologue_quantize", "prologue_quantize leaves what both calls leave.", "K3 K5 K6",
       check_prologue_quantize},
      {"kernels.adam", "octavo.kernels.adam/2 (provisional).", "K3 K5 K6", check_adam},
      {"kernels.msamp", "octavo.kernels.msamp/1 (provisional).", "K3 K5 K6", check_msamp},
      {"kernels.rounding", "octavo.kernels.rounding/1 (provisional).", "K3 K5 K6", check_rounding},
      {"kernels.one_pass", "octavo.kernels.one_pass/1 (provisional).", "K3 K5 K6", check_one_pass},
  };
  return kChecks;
}

}  // namespace octavo::conformance::kernels
