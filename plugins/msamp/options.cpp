// The options of the msamp backend; the levels and windows are MS-AMP's (msamp.initialize,
// msamp/common/tensor/meta.py), the rest is what MS-AMP leaves no choice about.
#include <iterator>
#include <string_view>

#include "msamp.h"
#include "plugins/common/setup.h"

namespace octavo::msamp {

using plugin::bool_value;
using plugin::integer_value;
using plugin::option;
using plugin::text_value;
using plugin::view;
using plugin::with_choices;
using plugin::with_range;

namespace {

const octavo_str kLevels[] = {OCTAVO_STR("O1"), OCTAVO_STR("O2"), OCTAVO_STR("O3")};
const octavo_str kProfiles[] = {OCTAVO_STR("msamp-fixed"), OCTAVO_STR("msamp04")};
const octavo_str kOptimizers[] = {OCTAVO_STR("adamw"), OCTAVO_STR("adam")};
const octavo_str kStates[] = {OCTAVO_STR("level"), OCTAVO_STR("e4m3-block"), OCTAVO_STR("coat")};
const octavo_str kGradients[] = {OCTAVO_STR("fp8"), OCTAVO_STR("fp32")};
const octavo_str kPrescales[] = {OCTAVO_STR("profile"), OCTAVO_STR("auto"), OCTAVO_STR("sqrt"),
                                 OCTAVO_STR("full"), OCTAVO_STR("none")};

}  // namespace

octavo_status list_options(const octavo_option_sink *sink) {
  const octavo_option options[] = {
      with_choices(option("opt_level", text_value("O2"),
                          "O1: f16 weights, FP8 gradients, fp32 moments; O2: moments in E4M3 and "
                          "f16; O3: weights in E4M3 with an f16 master"),
                   kLevels),
      with_choices(option("profile", text_value("msamp-fixed"),
                          "msamp04: the arithmetic of MS-AMP 0.4.0 with its mistakes, for "
                          "comparison"),
                   kProfiles),
      with_range(option("amax_history_len", integer_value(16),
                        "steps that the scales of x and dy look back, and their warm-up"),
                 1, 65536),
      with_choices(option("optimizer", text_value("adamw"),
                          "adamw: decoupled weight decay; adam: L2 added to the gradient"),
                   kOptimizers),
      option("amsgrad", bool_value(false), "only false is possible"),
      with_choices(option("state_format", text_value("level"),
                          "of both moments; level: as opt_level says; e4m3-block: E4M3, a scale "
                          "for 256 elements; coat: E4M3 with dynamic range expansion, groups of "
                          "128"),
                   kStates),
      with_choices(option("gradient_accumulation", text_value("fp8"),
                          "how weight gradients are kept between micro-batches"),
                   kGradients),
      with_choices(option("prescale", text_value("profile"),
                          "what gradients are multiplied by before ranks add them; auto: FP8-LM's "
                          "rule; sqrt: 1/sqrt(ranks); full: 1/ranks; profile: auto with "
                          "msamp-fixed, sqrt with msamp04"),
                   kPrescales),
      with_range(option("one_shot_bytes", integer_value(262144),
                        "buckets up to this size are reduced in one exchange instead of two"),
                 0, INT64_C(1) << 40),
      option("weight_cache", bool_value(true),
             "false: weights are cast in every call, which saves their FP8 copies"),
  };
  return plugin::list_all(sink, options, std::size(options));
}

// Types, ranges and choices were checked by the SDK against the list above.
Recipe parse_recipe(const octavo_session_desc &desc) {
  Recipe r;
  bool by_profile = true;
  for (uint64_t i = 0; i < desc.option_count; ++i) {
    const std::string_view name = view(desc.options[i].name);
    const octavo_value &v = desc.options[i].value;
    const std::string_view text = v.type == OCTAVO_VALUE_TEXT ? view(v.text) : std::string_view();
    if (name == "opt_level")
      r.level = text == "O1" ? Level::kO1 : text == "O3" ? Level::kO3 : Level::kO2;
    if (name == "profile") r.parity = text == "msamp04";
    if (name == "amax_history_len") r.amax_history_len = static_cast<uint64_t>(v.integer);
    if (name == "optimizer") r.decay_is_l2 = text == "adam";
    if (name == "amsgrad") r.amsgrad = v.integer != 0;
    if (name == "state_format")
      r.state_granularity = text == "coat"         ? OCTAVO_EXPANDED_128
                            : text == "e4m3-block" ? OCTAVO_FLAT_256
                                                   : OCTAVO_PER_TENSOR;
    if (name == "gradient_accumulation") r.fp32_gradients = text == "fp32";
    if (name == "prescale") by_profile = text == "profile";
    if (name == "prescale")
      r.prescale = text == "sqrt"   ? Prescale::kSqrt
                   : text == "full" ? Prescale::kFull
                   : text == "none" ? Prescale::kNone
                                    : Prescale::kAuto;
    if (name == "one_shot_bytes") r.one_shot_bytes = static_cast<uint64_t>(v.integer);
    if (name == "weight_cache") r.weight_cache = v.integer != 0;
  }
  if (by_profile) r.prescale = r.parity ? Prescale::kSqrt : Prescale::kAuto;
  return r;
}

}  // namespace octavo::msamp
