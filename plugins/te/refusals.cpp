// What te refuses: options that Transformer Engine refuses, that it removed, or that contradict
// each other. Nothing is corrected silently.
#include "choices.h"

namespace octavo::te {
namespace {

struct Rule {
  bool (*broken)(const Choices &);
  octavo_str text;
  octavo_str remedy;
  const char *found[3];  // the options that the evidence shows
};

const Rule kRules[] = {
    {[](const Choices &o) {
       return o.flag("use_mxfp8_block_scaling") &&
              (o.text("recipe") == "current" || o.text("recipe") == "block");
     },
     OCTAVO_STR("use_mxfp8_block_scaling chooses the recipe mx, but another recipe is named"),
     OCTAVO_STR("set fp8.te.recipe = \"mx\", or use_mxfp8_block_scaling = false"),
     {"recipe", "use_mxfp8_block_scaling"}},
    {[](const Choices &o) {
       return o.flag("use_mxfp8_block_scaling") &&
              (o.integer("amax_history_len") != 1024 || o.text("amax_compute_algo") != "max");
     },
     OCTAVO_STR("MXFP8 block scaling has no amax history, so options about one contradict it"),
     OCTAVO_STR("remove fp8.te.amax_history_len and amax_compute_algo"),
     {"use_mxfp8_block_scaling", "amax_history_len", "amax_compute_algo"}},
    {[](const Choices &o) { return o.profile().scaling != o.recipe().scaling; },
     OCTAVO_STR("the profile belongs to another recipe"),
     OCTAVO_STR("set fp8.te.profile = \"default\", or the recipe that the profile names"),
     {"profile", "recipe"}},
    {[](const Choices &o) { return o.text("fp8_format") == "E5M2"; },
     OCTAVO_STR("pure E5M2 training is not supported: its 2 bits of mantissa serve gradients only"),
     OCTAVO_STR("set fp8.te.fp8_format = \"HYBRID\""),
     {"fp8_format"}},
    {[](const Choices &o) { return !o.is(Scaling::kDelayed) && o.integer("margin") != 0; },
     OCTAVO_STR("only delayed scaling has a margin"),
     OCTAVO_STR("set fp8.te.margin = 0"),
     {"margin", "recipe"}},
    {[](const Choices &o) { return o.integer("interval") > 1; },
     OCTAVO_STR("scales are computed in every step: Transformer Engine removed the interval"),
     OCTAVO_STR("set fp8.te.interval = 1"),
     {"interval"}},
    {[](const Choices &o) { return !o.text("scaling_factor_compute_algo").empty(); },
     OCTAVO_STR("a function that computes scales cannot come from a configuration"),
     OCTAVO_STR("set fp8.te.scaling_factor_compute_algo = \"\" and choose a profile"),
     {"scaling_factor_compute_algo"}},
    {[](const Choices &o) {
       return o.is(Scaling::kDelayed) && o.text("backward_override") != "none" &&
              !o.text("backward_override").empty();
     },
     OCTAVO_STR("delayed scaling supports no backward_override"),
     OCTAVO_STR("set fp8.te.backward_override = \"none\", or fp8.te.recipe = \"current\""),
     {"backward_override", "recipe"}},
    {[](const Choices &o) {
       const auto given = [&](const char *name) {
         return o.text(name) != "none" && !o.text(name).empty();
       };
       return given("backward_override") && given("override_linear_precision");
     },
     OCTAVO_STR("backward_override and override_linear_precision both say what backward runs on"),
     OCTAVO_STR("set one of fp8.te.backward_override and override_linear_precision to \"none\""),
     {"backward_override", "override_linear_precision"}},
    {[](const Choices &o) {
       return o.real("amax_epsilon") != 0 && !o.is(Scaling::kCurrent) && !o.is(Scaling::kBlock);
     },
     OCTAVO_STR("only current and block scaling have an amax_epsilon"),
     OCTAVO_STR("set fp8.te.amax_epsilon = 0.0"),
     {"amax_epsilon", "recipe"}},
    {[](const Choices &o) {
       return o.flag("current_scaling_power_2_scales") && !o.is(Scaling::kCurrent);
     },
     OCTAVO_STR("current_scaling_power_2_scales belongs to the recipe current"),
     OCTAVO_STR("set fp8.te.current_scaling_power_2_scales = false"),
     {"current_scaling_power_2_scales", "recipe"}},
    {[](const Choices &o) { return o.flag("block_scaling_fp32_scales") && !o.is(Scaling::kBlock); },
     OCTAVO_STR("block_scaling_fp32_scales belongs to the recipe block"),
     OCTAVO_STR("set fp8.te.block_scaling_fp32_scales = false"),
     {"block_scaling_fp32_scales", "recipe"}},
    {[](const Choices &o) { return o.flag("mxfp8_2d_quantization") && !o.is(Scaling::kMx); },
     OCTAVO_STR("mxfp8_2d_quantization belongs to the recipe mx"),
     OCTAVO_STR("set fp8.te.mxfp8_2d_quantization = false"),
     {"mxfp8_2d_quantization", "recipe"}},
    {[](const Choices &o) { return o.flag("fp8_dpa") || o.flag("fp8_mha"); },
     OCTAVO_STR("this backend has linear layers only: attention stays with the host"),
     OCTAVO_STR("set fp8.te.fp8_dpa = false and fp8_mha = false"),
     {"fp8_dpa", "fp8_mha"}},
};

}  // namespace

void refuse_choices(const Choices &c, std::vector<Refusal> *refusals) {
  for (const Rule &rule : kRules) {
    if (!rule.broken(c)) continue;
    std::string evidence;
    for (const char *name : rule.found)
      if (name != nullptr) evidence += (evidence.empty() ? "" : ", ") + c.shown(name);
    refusals->push_back({OCTAVO_REASON_OPTION, rule.text, std::move(evidence), rule.remedy});
  }
}

}  // namespace octavo::te
