// The options of the te backend, by the names, defaults and ranges of Transformer Engine's recipes
// (transformer_engine/common/recipe: DelayedScaling, Float8CurrentScaling).
#include <iterator>
#include <string_view>

#include "plugins/common/setup.h"
#include "te.h"

namespace octavo::te {

using plugin::integer_value;
using plugin::option;
using plugin::text_value;
using plugin::view;
using plugin::with_choices;
using plugin::with_range;

namespace {

const octavo_str kRecipes[] = {OCTAVO_STR("delayed"), OCTAVO_STR("current")};
const octavo_str kFormats[] = {OCTAVO_STR("HYBRID"), OCTAVO_STR("E4M3")};
const octavo_str kAlgorithms[] = {OCTAVO_STR("max"), OCTAVO_STR("most_recent")};
const octavo_str kProfiles[] = {OCTAVO_STR("te2-delayed-fused"), OCTAVO_STR("te2-delayed-unfused")};

}  // namespace

octavo_status list_options(const octavo_option_sink *sink) {
  const octavo_option options[] = {
      with_choices(
          option("recipe", text_value("delayed"),
                 "delayed: scales from the amax of earlier steps; current: from this tensor"),
          kRecipes),
      with_choices(option("fp8_format", text_value("HYBRID"),
                          "HYBRID: float8_e4m3fn forward, float8_e5m2 gradients; E4M3: one format"),
                   kFormats),
      with_range(
          option("margin", integer_value(0), "the scale is divided by 2^margin; delayed only"), 0,
          30),
      with_range(option("amax_history_len", integer_value(1024),
                        "steps that amax looks back; delayed only"),
                 1, 65536),
      with_choices(option("amax_compute_algo", text_value("max"),
                          "max over the history, or the most_recent step; delayed only"),
                   kAlgorithms),
      with_choices(option("profile", text_value("te2-delayed-fused"),
                          "whose arithmetic of the delayed update: TE's fused kernel or its Python "
                          "path"),
                   kProfiles),
  };
  return plugin::list_all(sink, options, std::size(options));
}

// Types, ranges and choices were checked by the SDK against the list above.
Recipe parse_recipe(const octavo_session_desc &desc) {
  Recipe r;
  for (uint64_t i = 0; i < desc.option_count; ++i) {
    const std::string_view name = view(desc.options[i].name);
    const octavo_value &v = desc.options[i].value;
    if (name == "recipe" && view(v.text) == "current") r.scaling = Scaling::kCurrent;
    if (name == "fp8_format" && view(v.text) == "E4M3") r.gradient_dtype = OCTAVO_E4M3FN;
    if (name == "margin") r.margin = static_cast<int32_t>(v.integer);
    if (name == "amax_history_len") r.amax_history_len = static_cast<uint64_t>(v.integer);
    if (name == "amax_compute_algo") r.use_max = view(v.text) == "max";
    if (name == "profile" && view(v.text) == "te2-delayed-unfused") r.rule = OCTAVO_RULE_RECIPROCAL;
  }
  return r;
}

}  // namespace octavo::te
