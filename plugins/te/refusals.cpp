// The combinations of options that no session of te can have.
#include "recipe.h"

namespace octavo::te {
namespace {

using O = Options;

bool is(const O &o, Scaling scaling) {
  return o.scaling() == scaling;
}

bool asks_for_stochastic(const O &o) {
  return o.gradient_rounding == GradientRounding::kStochastic;
}

using plugin::set_key;

const plugin::OptionRule<O> kRules[] = {
    {[](const O &o) {
       return o.use_mxfp8_block_scaling && o.recipe != Scaling::kDelayed &&
              o.recipe != Scaling::kMx;
     },
     "use_mxfp8_block_scaling chooses the recipe mx, but another recipe is named",
     set_key("fp8.te.recipe", "\"mx\"", ", or use_mxfp8_block_scaling = false"),
     {"recipe", "use_mxfp8_block_scaling"}},
    {[](const O &o) {
       return o.use_mxfp8_block_scaling && (o.amax_history_len != O{}.amax_history_len ||
                                            o.amax_compute_algo != Algorithm::kMax);
     },
     "MXFP8 block scaling has no amax history, so options about one contradict it",
     "remove fp8.te.amax_history_len and amax_compute_algo",
     {"use_mxfp8_block_scaling", "amax_history_len", "amax_compute_algo"}},
    {[](const O &o) { return scaling_of_profile(o) != o.scaling(); },
     "the profile belongs to another recipe",
     set_key("fp8.te.profile", "\"default\"", ", or the recipe that the profile names"),
     {"profile", "recipe"}},
    {[](const O &o) { return o.fp8_format == Format::kE5m2; },
     "pure E5M2 training is not supported: its 2 bits of mantissa serve gradients only",
     set_key("fp8.te.fp8_format", "\"HYBRID\""),
     {"fp8_format"}},
    {[](const O &o) { return !is(o, Scaling::kDelayed) && o.margin != 0; },
     "only delayed scaling has a margin",
     set_key("fp8.te.margin", "0"),
     {"margin", "recipe"}},
    {[](const O &o) { return !is(o, Scaling::kDelayed) && o.amax_overflow != AmaxOverflow::kTe; },
     "only delayed scaling has a history that an infinite amax could stay in",
     set_key("fp8.te.amax_overflow", "\"te\""),
     {"amax_overflow", "recipe"}},
    {[](const O &o) { return o.interval > 1; },
     "scales are computed in every step: Transformer Engine removed the interval",
     set_key("fp8.te.interval", "1"),
     {"interval"}},
    {[](const O &o) { return !o.scaling_factor_compute_algo.empty(); },
     "a function that computes scales cannot come from a configuration",
     set_key("fp8.te.scaling_factor_compute_algo", "\"\"", " and choose a profile"),
     {"scaling_factor_compute_algo"}},
    {[](const O &o) {
       return is(o, Scaling::kDelayed) && o.backward_override != BackwardOverride::kNone;
     },
     "delayed scaling supports no backward_override",
     set_key("fp8.te.backward_override", "\"none\"", ", or fp8.te.recipe = \"current\""),
     {"backward_override", "recipe"}},
    {[](const O &o) {
       return o.backward_override != BackwardOverride::kNone &&
              o.override_linear_precision != "none";
     },
     "backward_override and override_linear_precision both say what backward runs on",
     "set one of fp8.te.backward_override and override_linear_precision to \"none\"",
     {"backward_override", "override_linear_precision"}},
    {[](const O &o) {
       return o.amax_epsilon != 0 && !is(o, Scaling::kCurrent) && !is(o, Scaling::kBlock);
     },
     "only current and block scaling have an amax_epsilon",
     set_key("fp8.te.amax_epsilon", "0.0"),
     {"amax_epsilon", "recipe"}},
    {[](const O &o) { return o.current_scaling_power_2_scales && !is(o, Scaling::kCurrent); },
     "current_scaling_power_2_scales belongs to the recipe current",
     set_key("fp8.te.current_scaling_power_2_scales", "false"),
     {"current_scaling_power_2_scales", "recipe"}},
    {[](const O &o) { return o.block_scaling_fp32_scales && !is(o, Scaling::kBlock); },
     "block_scaling_fp32_scales belongs to the recipe block",
     set_key("fp8.te.block_scaling_fp32_scales", "false"),
     {"block_scaling_fp32_scales", "recipe"}},
    {[](const O &o) { return o.mxfp8_2d_quantization && !is(o, Scaling::kMx); },
     "mxfp8_2d_quantization belongs to the recipe mx",
     set_key("fp8.te.mxfp8_2d_quantization", "false"),
     {"mxfp8_2d_quantization", "recipe"}},
    {[](const O &o) { return is(o, Scaling::kNvfp4) && o.fp8_format == Format::kHybrid; },
     "nvfp4 has one format for x, w and dy, with scales in E4M3",
     set_key("fp8.te.fp8_format", "\"default\""),
     {"fp8_format", "recipe"}},
    {[](const O &o) {
       return !is(o, Scaling::kNvfp4) &&
              (o.disable_rht || o.disable_stochastic_rounding || o.disable_2d_quantization);
     },
     "only nvfp4 has a transform, stochastic rounding by default and blocks of 16 x 16 elements",
     set_key("fp8.te.recipe", "\"nvfp4\"", ", or remove the option"),
     {"disable_rht", "disable_stochastic_rounding", "disable_2d_quantization"}},
    {[](const O &o) { return asks_for_stochastic(o) && o.disable_stochastic_rounding; },
     "gradient_rounding and disable_stochastic_rounding contradict each other",
     "remove one of fp8.te.gradient_rounding and disable_stochastic_rounding",
     {"gradient_rounding", "disable_stochastic_rounding"}},
    {[](const O &o) { return asks_for_stochastic(o) && !recipe_of(o).casts_dy(); },
     "no product reads codes of gradients, so none would be rounded at random",
     set_key("fp8.te.gradient_rounding", "\"default\"", ", or let dgrad or wgrad run in FP8"),
     {"gradient_rounding", "override_linear_precision", "backward_override"}},
    {[](const O &o) { return o.rounding_seed != 0 && !recipe_of(o).is_stochastic(); },
     "only stochastic rounding has a seed",
     set_key("fp8.te.rounding_seed", "0", ", or gradient_rounding = \"stochastic\""),
     {"rounding_seed", "gradient_rounding", "disable_stochastic_rounding"}},
    {[](const O &o) { return is(o, Scaling::kNvfp4) && o.telemetry; },
     "nothing measures how well codes of 4 bits represent values",
     set_key("fp8.te.telemetry", "false"),
     {"telemetry", "recipe"}},
    {[](const O &o) { return o.fp8_dpa || o.fp8_mha; },
     "this backend has linear layers only: attention is not converted",
     set_key("fp8.te.fp8_dpa", "false", " and fp8_mha = false"),
     {"fp8_dpa", "fp8_mha"}},
};

}  // namespace

void refuse_options(const Options &o, plugin::Verdicts &verdicts) {
  plugin::check_options(o, kRules, verdicts);
}

}  // namespace octavo::te
