// What a session computes: the recipes of Transformer Engine, and torchao's rowwise, as data.
#pragma once

#include "options.h"

namespace octavo::te {

// On what one of the three products of a linear layer runs.
enum class Operands {
  kFp8,         // codes
  kPlain,       // the host's own tensors
  kDequantized  // the host's dy, and what the codes of the forward pass stand for
};

struct Recipe {
  Scaling scaling = Scaling::kDelayed;
  uint32_t rule = OCTAVO_RULE_QUOTIENT;              // delayed: of end_step; else of every cast
  uint32_t history = OCTAVO_HISTORY_TE;              // delayed: OCTAVO_HISTORY_...
  uint32_t operand_granularity = OCTAVO_PER_TENSOR;  // x and dy
  uint32_t weight_granularity = OCTAVO_PER_TENSOR;
  uint32_t operand_dtype = OCTAVO_E4M3FN;  // x and w
  uint32_t gradient_dtype = OCTAVO_E5M2;   // HYBRID; E4M3 uses one format throughout
  float eps = 0;                           // a smaller amax counts as this
  bool warms_up = false;  // delayed: a cast without a history has the scale of its own amax
  uint32_t x_flags = 0;   // OCTAVO_FP4_... of casts to E2M1
  uint32_t dy_flags = 0;
  bool rounds_at_random = false;  // dy
  Operands fprop = Operands::kFp8;
  Operands dgrad = Operands::kFp8;
  Operands wgrad = Operands::kFp8;
  bool evaluates_in_fp8 = false;

  bool delayed() const { return scaling == Scaling::kDelayed; }
  bool per_tensor() const { return operand_granularity == OCTAVO_PER_TENSOR; }
  bool is_fp4() const { return operand_dtype == OCTAVO_E2M1; }
  bool is_stochastic() const { return casts_dy() && rounds_at_random; }
  bool rows() const { return operand_granularity == OCTAVO_PER_ROW; }
  // Which products read codes of the weight, of x and of dy.
  bool casts_weight() const { return fprop == Operands::kFp8 || dgrad != Operands::kPlain; }
  bool casts_x() const { return fprop == Operands::kFp8 || wgrad == Operands::kFp8; }
  bool casts_dy() const { return dgrad == Operands::kFp8 || wgrad == Operands::kFp8; }
  // Nothing but fprop reads the codes [N, K], and per tensor: any order of them will do.
  bool may_pack_weight() const {
    return fprop == Operands::kFp8 && dgrad != Operands::kDequantized && per_tensor();
  }
  // Whether some forward call runs on plain operands.
  bool forward_reads_weight() const { return fprop == Operands::kPlain || !evaluates_in_fp8; }
};

// The recipe that legal options name.
Recipe recipe_of(const Options &o);
// The profile that the options name or that the recipe has by default, and its recipe.
Scaling scaling_of_profile(const Options &o);

// "delayed scaling, HYBRID": for people.
const char *describe(const Recipe &r);

}  // namespace octavo::te
