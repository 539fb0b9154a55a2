// The options of the te backend, by the names, defaults and ranges of Transformer Engine's recipes
// (transformer_engine/common/recipe: DelayedScaling, Float8CurrentScaling).
#include <cstring>
#include <string_view>

#include "te.h"

namespace octavo::te {
namespace {

std::string_view view(octavo_str s) {
  return {s.data, s.size};
}

octavo_value text(const char *s) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_TEXT;
  v.text = {s, std::strlen(s)};
  return v;
}

octavo_value integer(int64_t i) {
  octavo_value v{};
  v.type = OCTAVO_VALUE_INT;
  v.integer = i;
  return v;
}

octavo_option option(const char *name, octavo_value initial, const char *help) {
  octavo_option o{};
  o.size = sizeof(o);
  o.kind = OCTAVO_KIND_OPTION;
  o.name = {name, std::strlen(name)};
  o.help = {help, std::strlen(help)};
  o.initial = initial;
  return o;
}

const octavo_str kRecipes[] = {OCTAVO_STR("delayed"), OCTAVO_STR("current")};
const octavo_str kFormats[] = {OCTAVO_STR("HYBRID"), OCTAVO_STR("E4M3")};
const octavo_str kAlgorithms[] = {OCTAVO_STR("max"), OCTAVO_STR("most_recent")};
const octavo_str kProfiles[] = {OCTAVO_STR("te2-delayed-fused"), OCTAVO_STR("te2-delayed-unfused")};

template <size_t N>
octavo_option with_choices(octavo_option o, const octavo_str (&choices)[N]) {
  o.choices = choices;
  o.choice_count = N;
  return o;
}

octavo_option with_range(octavo_option o, int64_t low, int64_t high) {
  o.low = integer(low);
  o.high = integer(high);
  return o;
}

}  // namespace

octavo_status list_options(const octavo_option_sink *sink) {
  const octavo_option options[] = {
      with_choices(
          option("recipe", text("delayed"),
                 "delayed: scales from the amax of earlier steps; current: from this tensor"),
          kRecipes),
      with_choices(option("fp8_format", text("HYBRID"),
                          "HYBRID: float8_e4m3fn forward, float8_e5m2 gradients; E4M3: one format"),
                   kFormats),
      with_range(option("margin", integer(0), "the scale is divided by 2^margin; delayed only"), 0,
                 30),
      with_range(
          option("amax_history_len", integer(1024), "steps that amax looks back; delayed only"), 1,
          65536),
      with_choices(option("amax_compute_algo", text("max"),
                          "max over the history, or the most_recent step; delayed only"),
                   kAlgorithms),
      with_choices(option("profile", text("te2-delayed-fused"),
                          "whose arithmetic of the delayed update: TE's fused kernel or its Python "
                          "path"),
                   kProfiles),
  };
  for (const octavo_option &o : options)
    if (const octavo_status status = sink->option(sink->ctx, &o); status != OCTAVO_OK)
      return status;
  return OCTAVO_OK;
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
