// The tables of recipes and profiles, and the options that depart from them.
#include "recipe.h"

namespace octavo::te {
namespace {

// Defaults of Transformer Engine's classes DelayedScaling, Float8CurrentScaling,
// Float8BlockScaling, MXFP8BlockScaling and NVFP4BlockScaling, and of torchao's recipe "rowwise"
// (float8/config.py: from_recipe_name at revision 36027d8), in the order of Scaling.
constexpr struct {
  const char *hybrid, *e4m3;
  Profile profile;
  Format format;
  uint32_t operand_granularity, weight_granularity;
} kRecipes[] = {
    {"delayed scaling, HYBRID", "delayed scaling, E4M3",  //
     Profile::kTe2DelayedFused, Format::kHybrid, OCTAVO_PER_TENSOR, OCTAVO_PER_TENSOR},
    {"current scaling, HYBRID", "current scaling, E4M3",  //
     Profile::kTe2Current, Format::kHybrid, OCTAVO_PER_TENSOR, OCTAVO_PER_TENSOR},
    {"block scaling, HYBRID", "block scaling, E4M3",  //
     Profile::kTe2Block, Format::kE4m3, OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128},
    {"MX block scaling, HYBRID", "MX block scaling, E4M3",  //
     Profile::kTe2Mx, Format::kE4m3, OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32},
    {"NVFP4 block scaling", "NVFP4 block scaling",  //
     Profile::kTe2Nvfp4, Format::kE4m3, OCTAVO_BLOCK_1X16, OCTAVO_BLOCK_16X16},
    {"scales of rows, HYBRID", "scales of rows, E4M3",  //
     Profile::kTorchaoRowwise, Format::kE4m3, OCTAVO_PER_ROW, OCTAVO_PER_ROW},
};

// How an amax becomes a scale, in the order of Profile.
constexpr struct {
  Scaling scaling;
  uint32_t rule;
  uint32_t history = OCTAVO_HISTORY_TE;
} kProfiles[] = {
    {},  // default: the recipe's
    {Scaling::kDelayed, OCTAVO_RULE_QUOTIENT},
    {Scaling::kDelayed, OCTAVO_RULE_RECIPROCAL, OCTAVO_HISTORY_TE_UNFUSED},
    {Scaling::kCurrent, OCTAVO_RULE_QUOTIENT},
    {Scaling::kBlock, OCTAVO_RULE_POW2},
    {Scaling::kMx, OCTAVO_RULE_MX_UP},
    {Scaling::kMx, OCTAVO_RULE_MX_FLOOR},
    {Scaling::kNvfp4, OCTAVO_RULE_NVFP4},
    {Scaling::kRowwise, OCTAVO_RULE_POW2},
};

// torchao's lower bound of an amax (float8/float8_utils.py: EPS).
constexpr float kRowwiseEps = 1e-12F;

const auto &row_of(Scaling scaling) {
  return kRecipes[static_cast<size_t>(scaling)];
}
const auto &profile_of(const Options &o) {
  return kProfiles[static_cast<size_t>(o.profile == Profile::kDefault ? row_of(o.scaling()).profile
                                                                      : o.profile)];
}

Operands overridden(const Options &o, const char *product) {
  return o.override_linear_precision.find(product) == std::string::npos ? Operands::kFp8
                                                                        : Operands::kPlain;
}

}  // namespace

Scaling scaling_of_profile(const Options &o) {
  return profile_of(o).scaling;
}

Recipe recipe_of(const Options &o) {
  const auto &row = row_of(o.scaling());
  Recipe r;
  r.scaling = o.scaling();
  r.rule = profile_of(o).rule;
  r.history = profile_of(o).history;
  r.warms_up = r.delayed() && o.profile == Profile::kDefault;
  if (r.warms_up) r.history |= OCTAVO_HISTORY_COUNT_FROM_ONE;  // an amax of Inf keeps the scale
  if (o.amax_overflow == AmaxOverflow::kRecover) r.history |= OCTAVO_HISTORY_DROP_NONFINITE;
  if (o.current_scaling_power_2_scales) r.rule = OCTAVO_RULE_POW2;
  if (o.block_scaling_fp32_scales) r.rule = OCTAVO_RULE_QUOTIENT;
  r.eps = r.scaling == Scaling::kRowwise ? kRowwiseEps : static_cast<float>(o.amax_epsilon);
  r.operand_granularity = row.operand_granularity;
  // A session of another recipe is refused, by the name of the option alone.
  const bool is_2d = o.mxfp8_2d_quantization && r.scaling == Scaling::kMx;
  r.weight_granularity = is_2d ? uint32_t{OCTAVO_BLOCK_32X32} : row.weight_granularity;
  const Format format = o.fp8_format == Format::kDefault ? row.format : o.fp8_format;
  if (format == Format::kE4m3) r.gradient_dtype = OCTAVO_E4M3FN;
  const bool is_random_by_default = r.scaling == Scaling::kNvfp4 && !o.disable_stochastic_rounding;
  r.rounds_at_random = o.gradient_rounding == GradientRounding::kDefault
                           ? is_random_by_default
                           : o.gradient_rounding == GradientRounding::kStochastic;
  if (r.scaling == Scaling::kNvfp4) {
    r.operand_dtype = r.gradient_dtype = OCTAVO_E2M1;
    if (o.disable_2d_quantization) r.weight_granularity = r.operand_granularity;
    r.x_flags = o.disable_rht ? 0 : OCTAVO_FP4_HADAMARD;
    r.dy_flags = r.x_flags | (r.rounds_at_random ? OCTAVO_FP4_STOCHASTIC : 0);
  }
  r.fprop = overridden(o, "fprop");
  r.dgrad = overridden(o, "dgrad");
  r.wgrad = overridden(o, "wgrad");
  if (o.backward_override == BackwardOverride::kHighPrecision) r.dgrad = r.wgrad = Operands::kPlain;
  if (o.backward_override == BackwardOverride::kDequantized)
    r.dgrad = r.wgrad = Operands::kDequantized;
  r.evaluates_in_fp8 = o.use_autocast_during_eval;
  return r;
}

const char *describe(const Recipe &r) {
  return r.gradient_dtype == OCTAVO_E5M2 ? row_of(r.scaling).hybrid : row_of(r.scaling).e4m3;
}

}  // namespace octavo::te
