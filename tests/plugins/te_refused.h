// Every combination of options that te refuses, and what it says about it.
#pragma once

#include <cstring>
#include <ostream>
#include <vector>

#include "octavo/backend.h"

namespace octavo::test {

struct Given {
  const char *name;
  octavo_value value;
};
inline Given text(const char *name, const char *v) {
  octavo_value value{};
  value.type = OCTAVO_VALUE_TEXT;
  value.text = {v, std::strlen(v)};
  return {name, value};
}
inline Given number(const char *name, int64_t v) {
  octavo_value value{};
  value.type = OCTAVO_VALUE_INT;
  value.integer = v;
  return {name, value};
}
inline Given real(const char *name, double v) {
  octavo_value value{};
  value.type = OCTAVO_VALUE_REAL;
  value.real = v;
  return {name, value};
}
inline Given yes(const char *name) {
  octavo_value value{};
  value.type = OCTAVO_VALUE_BOOL;
  value.integer = 1;
  return {name, value};
}

struct Refused {
  const char *name;
  std::vector<Given> options;
  const char *text;
  const char *evidence;
  const char *remedy;
};
inline void PrintTo(const Refused &r, std::ostream *out) {
  *out << r.name;
}

inline const std::vector<Refused> &all_refused() {
  static const std::vector<Refused> all = {
      {"mx_switch_with_current",
       {yes("use_mxfp8_block_scaling"), text("recipe", "current")},
       "use_mxfp8_block_scaling chooses the recipe mx",
       "recipe = \"current\", use_mxfp8_block_scaling = true",
       "recipe = \"mx\""},
      {"mx_switch_with_block",
       {yes("use_mxfp8_block_scaling"), text("recipe", "block")},
       "use_mxfp8_block_scaling chooses the recipe mx",
       "recipe = \"block\", use_mxfp8_block_scaling = true",
       "recipe = \"mx\""},
      {"mx_switch_with_history",
       {yes("use_mxfp8_block_scaling"), number("amax_history_len", 32)},
       "no amax history",
       "use_mxfp8_block_scaling = true, amax_history_len = 32, amax_compute_algo = \"max\"",
       "remove fp8.te.amax_history_len"},
      {"mx_switch_with_algorithm",
       {yes("use_mxfp8_block_scaling"), text("amax_compute_algo", "most_recent")},
       "no amax history",
       "amax_compute_algo = \"most_recent\"",
       "remove fp8.te.amax_history_len"},
      {"overflow_without_a_history",
       {text("amax_overflow", "recover"), text("recipe", "current")},
       "only delayed scaling has a history that an infinite amax could stay in",
       "amax_overflow = \"recover\", recipe = \"current\"",
       "amax_overflow = \"te\""},
      {"profile_of_another_recipe",
       {text("profile", "te2-block")},
       "the profile belongs to another recipe",
       "profile = \"te2-block\", recipe = \"delayed\"",
       "profile = \"default\""},
      {"delayed_profile_with_current",
       {text("profile", "te2-delayed-fused"), text("recipe", "current")},
       "the profile belongs to another recipe",
       "profile = \"te2-delayed-fused\", recipe = \"current\"",
       "profile = \"default\""},
      {"pure_e5m2",
       {text("fp8_format", "E5M2")},
       "pure E5M2 training is not supported",
       "fp8_format = \"E5M2\"",
       "fp8_format = \"HYBRID\""},
      {"pure_e5m2_mx",
       {text("fp8_format", "E5M2"), text("recipe", "mx")},
       "pure E5M2 training is not supported",
       "fp8_format = \"E5M2\"",
       "fp8_format = \"HYBRID\""},
      {"margin_with_current",
       {number("margin", 3), text("recipe", "current")},
       "only delayed scaling has a margin",
       "margin = 3, recipe = \"current\"",
       "margin = 0"},
      {"margin_with_block",
       {number("margin", 1), text("recipe", "block")},
       "only delayed scaling has a margin",
       "margin = 1, recipe = \"block\"",
       "margin = 0"},
      {"margin_with_mx",
       {number("margin", 2), text("recipe", "mx")},
       "only delayed scaling has a margin",
       "margin = 2, recipe = \"mx\"",
       "margin = 0"},
      {"interval", {number("interval", 2)}, "removed the interval", "interval = 2", "interval = 1"},
      {"scale_function",
       {text("scaling_factor_compute_algo", "mine")},
       "cannot come from a configuration",
       "scaling_factor_compute_algo = \"mine\"",
       "choose a profile"},
      {"backward_override_with_delayed",
       {text("backward_override", "high_precision")},
       "delayed scaling supports no backward_override",
       "backward_override = \"high_precision\", recipe = \"delayed\"",
       "recipe = \"current\""},
      {"dequantized_with_delayed",
       {text("backward_override", "dequantized")},
       "delayed scaling supports no backward_override",
       "backward_override = \"dequantized\"",
       "backward_override = \"none\""},
      {"two_overrides",
       {text("backward_override", "dequantized"), text("override_linear_precision", "fprop"),
        text("recipe", "block")},
       "both say what backward runs on",
       "backward_override = \"dequantized\", override_linear_precision = \"fprop\"",
       "to \"none\""},
      {"epsilon_with_delayed",
       {real("amax_epsilon", 0.5)},
       "only current and block scaling have an amax_epsilon",
       "amax_epsilon = 0.5, recipe = \"delayed\"",
       "amax_epsilon = 0.0"},
      {"epsilon_with_mx",
       {real("amax_epsilon", 0.25), text("recipe", "mx")},
       "only current and block scaling have an amax_epsilon",
       "amax_epsilon = 0.25, recipe = \"mx\"",
       "amax_epsilon = 0.0"},
      {"epsilon_with_rowwise",
       {real("amax_epsilon", 0.25), text("recipe", "rowwise")},
       "only current and block scaling have an amax_epsilon",
       "amax_epsilon = 0.25, recipe = \"rowwise\"",
       "amax_epsilon = 0.0"},
      {"power_2_with_delayed",
       {yes("current_scaling_power_2_scales")},
       "belongs to the recipe current",
       "current_scaling_power_2_scales = true, recipe = \"delayed\"",
       "current_scaling_power_2_scales = false"},
      {"fp32_scales_with_current",
       {yes("block_scaling_fp32_scales"), text("recipe", "current")},
       "belongs to the recipe block",
       "block_scaling_fp32_scales = true, recipe = \"current\"",
       "block_scaling_fp32_scales = false"},
      {"2d_with_block",
       {yes("mxfp8_2d_quantization"), text("recipe", "block")},
       "belongs to the recipe mx",
       "mxfp8_2d_quantization = true, recipe = \"block\"",
       "mxfp8_2d_quantization = false"},
      {"hybrid_with_nvfp4",
       {text("fp8_format", "HYBRID"), text("recipe", "nvfp4")},
       "one format for x, w and dy",
       "fp8_format = \"HYBRID\", recipe = \"nvfp4\"",
       "fp8_format = \"default\""},
      {"telemetry_with_nvfp4",
       {yes("telemetry"), text("recipe", "nvfp4")},
       "nothing measures",
       "telemetry = true, recipe = \"nvfp4\"",
       "telemetry = false"},
      {"transform_with_mx",
       {yes("disable_rht"), text("recipe", "mx")},
       "only nvfp4 has a transform",
       "disable_rht = true, disable_stochastic_rounding = false",
       "recipe = \"nvfp4\""},
      {"seed_with_delayed",
       {number("rounding_seed", 3)},
       "only stochastic rounding has a seed",
       "rounding_seed = 3, gradient_rounding = \"default\", disable_stochastic_rounding = false",
       "rounding_seed = 0"},
      {"rounding_asked_for_and_disabled",
       {text("gradient_rounding", "stochastic"), yes("disable_stochastic_rounding"),
        text("recipe", "nvfp4")},
       "contradict each other",
       "gradient_rounding = \"stochastic\", disable_stochastic_rounding = true",
       "remove one of fp8.te.gradient_rounding and disable_stochastic_rounding"},
      {"rounding_without_codes",
       {text("gradient_rounding", "stochastic"), text("override_linear_precision", "dgrad,wgrad")},
       "no product reads codes of gradients",
       "override_linear_precision = \"dgrad,wgrad\"",
       "gradient_rounding = \"default\""},
      {"rounding_of_dequantized_gradients",
       {text("gradient_rounding", "stochastic"), text("backward_override", "dequantized"),
        text("recipe", "block")},
       "no product reads codes of gradients",
       "backward_override = \"dequantized\"",
       "gradient_rounding = \"default\""},
      {"seed_without_rounding",
       {number("rounding_seed", 3), yes("disable_stochastic_rounding"), text("recipe", "nvfp4")},
       "has a seed",
       "disable_stochastic_rounding = true",
       "rounding_seed = 0"},
      {"switch_with_nvfp4",
       {yes("use_mxfp8_block_scaling"), text("recipe", "nvfp4")},
       "chooses the recipe mx",
       "recipe = \"nvfp4\"",
       "use_mxfp8_block_scaling = false"},
      {"fp8_dpa",
       {yes("fp8_dpa")},
       "attention is not converted",
       "fp8_dpa = true, fp8_mha = false",
       "fp8_dpa = false"},
      {"fp8_mha",
       {yes("fp8_mha"), text("recipe", "mx")},
       "attention is not converted",
       "fp8_dpa = false, fp8_mha = true",
       "fp8_mha = false"},
  };
  return all;
}

}  // namespace octavo::test
