// The list, in the order in which an author meets them.
#include "checks.h"

namespace octavo::conformance::kernels {

std::span<const Check> checks() {
  static constexpr Check kChecks[] = {
      {"kernels.quantize", "Casts with one scale: roundings, rules, outputs, amax.", "K3 K5 K6",
       check_quantize},
      {"kernels.quantize.nonfinite", "Inf saturates, NaN stays NaN, and both are reported.",
       "K3 K5 K6", check_quantize_nonfinite},
      {"kernels.quantize.delayed", "counter and window choose the scale.", "K3 K5 K6",
       check_quantize_delayed},
      {"kernels.quantize.rows", "Casts with scales of rows.", "K3 K5 K6", check_quantize_rows},
      {"kernels.quantize.blocks", "Casts with scales of blocks of 128 and 32.", "K3 K5 K6",
       check_quantize_blocks},
      {"kernels.quantize.states", "Casts with scales of groups of 256.", "K3 K5 K6",
       check_quantize_states},
  };
  return kChecks;
}

}  // namespace octavo::conformance::kernels
