// The options of the te backend, by the names, defaults and ranges of Transformer Engine's recipes
// (transformer_engine/common/recipe), of Accelerate's TERecipeKwargs, and of torchao's rowwise.
// Octavo's own are gradient_rounding, rounding_seed and a history of 16 steps, not 1024.
// What Transformer Engine keeps in environment variables (powers of two, fp32 scales) is an option,
// too.
#pragma once

#include "octavo/plugin.hpp"

namespace octavo::te {

// In the order of the texts that options.cpp names.
enum class Scaling { kDelayed, kCurrent, kBlock, kMx, kNvfp4, kRowwise };
enum class Profile {
  kDefault,
  kTe2DelayedFused,
  kTe2DelayedUnfused,
  kTe2Current,
  kTe2Block,
  kTe2Mx,
  kOcpMx,
  kTe2Nvfp4,
  kTorchaoRowwise
};
enum class Format { kDefault, kHybrid, kE4m3, kE5m2 };
enum class Algorithm { kMax, kMostRecent };
enum class AmaxOverflow { kTe, kRecover };
enum class GradientRounding { kDefault, kNearest, kStochastic };
enum class BackwardOverride { kNone, kHighPrecision, kDequantized };

struct Options {
  Scaling recipe = Scaling::kDelayed;
  Profile profile = Profile::kDefault;
  Format fp8_format = Format::kDefault;
  int64_t margin = 0;
  int64_t interval = 1;
  int64_t amax_history_len = 16;
  Algorithm amax_compute_algo = Algorithm::kMax;
  AmaxOverflow amax_overflow = AmaxOverflow::kTe;
  std::string scaling_factor_compute_algo;
  bool reduce_amax = true;
  std::string override_linear_precision = "none";
  BackwardOverride backward_override = BackwardOverride::kNone;
  bool use_autocast_during_eval = false;
  bool use_mxfp8_block_scaling = false;
  bool mxfp8_2d_quantization = false;
  bool current_scaling_power_2_scales = false;
  bool block_scaling_fp32_scales = false;
  double amax_epsilon = 0;
  bool disable_rht = false;
  bool disable_stochastic_rounding = false;
  bool disable_2d_quantization = false;
  GradientRounding gradient_rounding = GradientRounding::kDefault;
  int64_t rounding_seed = 0;
  bool fp8_dpa = false;
  bool fp8_mha = false;
  bool telemetry = false;

  static void list(plugin::OptionList<Options> &l);

  Scaling scaling() const { return use_mxfp8_block_scaling ? Scaling::kMx : recipe; }
};

// What te refuses: options that Transformer Engine refuses, that it removed, or that contradict
// each other. Nothing is corrected silently.
void refuse_options(const Options &o, plugin::Verdicts &verdicts);

}  // namespace octavo::te
