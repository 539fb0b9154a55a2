// From options to a recipe.
#include "choices.h"

namespace octavo::te {
namespace {

Operands overridden(const Choices &o, const char *product) {
  return o.text("override_linear_precision").find(product) == std::string_view::npos
             ? Operands::kFp8
             : Operands::kPlain;
}

// Rules of scales that an option chooses beside the profile.
uint32_t rule_of(const Choices &o) {
  if (o.flag("current_scaling_power_2_scales")) return OCTAVO_RULE_POW2;
  if (o.flag("block_scaling_fp32_scales")) return OCTAVO_RULE_QUOTIENT;
  return o.profile().rule;
}

const char *name_of(uint32_t granularity) {
  switch (granularity) {
    case OCTAVO_BLOCK_1X128: return "scales of 1x128 elements";
    case OCTAVO_BLOCK_128X128: return "scales of 128x128 elements";
    case OCTAVO_BLOCK_1X32: return "scales of 1x32 elements";
    case OCTAVO_BLOCK_32X32: return "scales of 32x32 elements";
    default: return "scales of tensors";
  }
}

}  // namespace

Recipe parse_recipe(const octavo_session_desc &desc, std::vector<Refusal> *refusals) {
  const Choices o(desc);
  refuse_choices(o, refusals);
  Recipe r;
  r.scaling = o.recipe().scaling;
  r.rule = rule_of(o);
  r.operand_granularity = o.recipe().operand_granularity;
  r.weight_granularity = o.recipe().weight_granularity;
  if (o.flag("mxfp8_2d_quantization")) r.weight_granularity = OCTAVO_BLOCK_32X32;
  r.gradient_dtype = o.format() == "E4M3" ? OCTAVO_E4M3FN : OCTAVO_E5M2;
  r.margin = static_cast<int32_t>(o.integer("margin"));
  r.amax_history_len = static_cast<uint64_t>(o.integer("amax_history_len"));
  r.use_max = o.text("amax_compute_algo") != "most_recent";
  r.reduce_amax = o.flag("reduce_amax");
  r.eps = static_cast<float>(o.real("amax_epsilon"));
  r.fprop = overridden(o, "fprop");
  r.dgrad = overridden(o, "dgrad");
  r.wgrad = overridden(o, "wgrad");
  if (o.text("backward_override") == "high_precision") r.dgrad = r.wgrad = Operands::kPlain;
  if (o.text("backward_override") == "dequantized") r.dgrad = r.wgrad = Operands::kDequantized;
  r.evaluates_in_fp8 = o.flag("use_autocast_during_eval");
  r.telemetry = o.flag("telemetry");
  for (const uint32_t granularity : {r.operand_granularity, r.weight_granularity}) {
    if ((desc.caps->granularities >> granularity & 1) != 0) continue;
    refusals->push_back({OCTAVO_REASON_KERNEL,
                         OCTAVO_STR("the kernels of this device lack the scales of the recipe"),
                         o.shown("recipe") + " needs " + name_of(granularity),
                         OCTAVO_STR("set fp8.te.recipe = \"current\"")});
    break;
  }
  return r;
}

octavo_str describe(const Recipe &r) {
  const bool hybrid = r.gradient_dtype == OCTAVO_E5M2;
  switch (r.scaling) {
    case Scaling::kDelayed:
      return hybrid ? octavo_str(OCTAVO_STR("delayed scaling, HYBRID"))
                    : octavo_str(OCTAVO_STR("delayed scaling, E4M3"));
    case Scaling::kCurrent:
      return hybrid ? octavo_str(OCTAVO_STR("current scaling, HYBRID"))
                    : octavo_str(OCTAVO_STR("current scaling, E4M3"));
    case Scaling::kBlock:
      return hybrid ? octavo_str(OCTAVO_STR("block scaling, HYBRID"))
                    : octavo_str(OCTAVO_STR("block scaling, E4M3"));
    default:
      return hybrid ? octavo_str(OCTAVO_STR("MX block scaling, HYBRID"))
                    : octavo_str(OCTAVO_STR("MX block scaling, E4M3"));
  }
}

}  // namespace octavo::te
