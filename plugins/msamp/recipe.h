// The options of msamp, and what each level keeps in which format.
//
// The levels and windows are MS-AMP's (msamp.initialize, msamp/common/tensor/meta.py), the rest is
// what MS-AMP leaves no choice about.
#pragma once

#include "octavo/draft/one_pass.h"
#include "octavo/plugin.hpp"

namespace octavo::msamp {

enum class Level { kO1, kO2, kO3 };
enum class Profile { kFixed, kMsamp04 };
enum class Decay { kAdamW, kAdam };
enum class States { kLevel, kE4m3Block, kCoat };
enum class Accumulation { kFp8, kFp32 };
enum class Prescale { kProfile, kAuto, kSqrt, kFull, kNone };
enum class StateRounding { kProfile, kShrinking, kNearest, kStochastic };
enum class StateScale { kExact, kBound };
enum class WeightRounding { kNearest, kStochastic };

// The dtypes of one parameter's tensors; 0: none.
struct Formats {
  uint32_t weight;         // of a linear
  uint32_t master_weight;  // what Adam steps; without it the weight itself
  uint32_t exp_avg;
  uint32_t exp_avg_sq;
};

// FP8-LM, arXiv 2310.18313, as MS-AMP's opt_level. Gradients of linear weights are
// E4M3 at every level. All but f32 have a scale_inv of the whole tensor.
constexpr Formats kLevels[] = {
    {OCTAVO_F16, 0, OCTAVO_F32, OCTAVO_F32},                 // O1
    {OCTAVO_F16, 0, OCTAVO_E4M3FN, OCTAVO_F16},              // O2
    {OCTAVO_E4M3FN, OCTAVO_F16, OCTAVO_E4M3FN, OCTAVO_F16},  // O3
};

// state_format: how many elements of a moment share a scale. In groups both moments are E4M3.
constexpr uint32_t kStateGranularities[] = {
    OCTAVO_PER_TENSOR,    // level
    OCTAVO_FLAT_256,      // e4m3-block: torchao's low-bit optimizers
    OCTAVO_EXPANDED_128,  // coat: COAT, arXiv 2410.19313, section 4
};

// What Adam's three tensors are rounded by, OCTAVO_ROUND_...
struct Roundings {
  uint32_t weight = OCTAVO_ROUND_NEAREST_EVEN;
  uint32_t exp_avg = OCTAVO_ROUND_NEAREST_EVEN;
  uint32_t exp_avg_sq = OCTAVO_ROUND_NEAREST_EVEN;

  // Otherwise a step is MS-AMP's own.
  bool any() const { return (weight | exp_avg | exp_avg_sq) != OCTAVO_ROUND_NEAREST_EVEN; }
};

struct Options {
  Level opt_level = Level::kO2;
  Profile profile = Profile::kFixed;
  uint64_t amax_history_len = 16;
  Decay optimizer = Decay::kAdamW;
  bool amsgrad = false;
  States state_format = States::kLevel;
  StateRounding state_rounding = StateRounding::kProfile;
  StateScale state_scale = StateScale::kExact;
  std::string state_skip;
  uint64_t state_min_size = 0;
  WeightRounding weight_rounding = WeightRounding::kNearest;
  uint64_t rounding_seed = 0;
  Accumulation gradient_accumulation = Accumulation::kFp8;
  Prescale prescale = Prescale::kProfile;
  uint64_t one_shot_bytes = 262144;
  bool weight_cache = true;
  bool telemetry = false;

  static void list(plugin::OptionList<Options> &l);

  // MS-AMP 0.4.0 with its quirks.
  bool parity() const { return profile == Profile::kMsamp04; }
  // MS-AMP's counter ends the update of an Inf or NaN at 0 in both.
  uint32_t history() const {
    return parity() ? uint32_t{OCTAVO_HISTORY_DROP_NONFINITE | OCTAVO_HISTORY_NAN_KEEPS}
                    : uint32_t{OCTAVO_HISTORY_MSAMP};
  }
  uint32_t rule() const { return parity() ? OCTAVO_RULE_MSAMP04 : uint32_t{OCTAVO_RULE_MSAMP}; }
  bool fp8_weights() const { return formats().weight == OCTAVO_E4M3FN; }
  uint32_t state_granularity() const {
    return kStateGranularities[static_cast<size_t>(state_format)];
  }
  Formats formats() const {
    Formats f = kLevels[static_cast<size_t>(opt_level)];
    if (state_format != States::kLevel) f.exp_avg = f.exp_avg_sq = OCTAVO_E4M3FN;
    return f;
  }
  // Whether a step's scales come from bounds. With moments in fp32 it has one pass anyway, but for
  // the scale of the weight.
  bool bounds_scales() const {
    return state_scale == StateScale::kBound && formats().exp_avg != OCTAVO_F32;
  }
  // Whether state_skip or state_min_size leave the moments of a parameter in fp32.
  bool keeps_moments(std::string_view name, int64_t elements) const;
  Roundings roundings() const {
    Roundings r;
    if (weight_rounding == WeightRounding::kStochastic) r.weight = OCTAVO_ROUND_STOCHASTIC;
    if (state_rounding == StateRounding::kStochastic)
      r.exp_avg = r.exp_avg_sq = OCTAVO_ROUND_STOCHASTIC;
    const bool shrinks = state_rounding == StateRounding::kShrinking ||
                         (state_rounding == StateRounding::kProfile && !parity());
    if (shrinks) r.exp_avg = OCTAVO_ROUND_SHRINKING;
    return r;
  }
  uint32_t gradient_dtype() const {
    return gradient_accumulation == Accumulation::kFp32 ? OCTAVO_F32 : OCTAVO_E4M3FN;
  }
  Prescale reduction_prescale() const {
    if (prescale != Prescale::kProfile) return prescale;
    return parity() ? Prescale::kSqrt : Prescale::kAuto;
  }
};

}  // namespace octavo::msamp
