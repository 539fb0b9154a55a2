// The options of the te backend, by the names, defaults and ranges of Transformer Engine's recipes
// (transformer_engine/common/recipe) and of Accelerate's TERecipeKwargs. What Transformer Engine
// keeps in environment variables (powers of two, fp32 scales) is an option, too.
#include <iterator>

#include "plugins/common/setup.h"
#include "recipe.h"

namespace octavo::te {

using plugin::bool_value;
using plugin::integer_value;
using plugin::option;
using plugin::real_value;
using plugin::text_value;
using plugin::with_choices;
using plugin::with_range;
using plugin::with_real_range;

namespace {

const octavo_str kRecipes[] = {OCTAVO_STR("delayed"), OCTAVO_STR("current"), OCTAVO_STR("block"),
                               OCTAVO_STR("mx")};
const octavo_str kProfiles[] = {
    OCTAVO_STR("default"),     OCTAVO_STR("te2-delayed-fused"), OCTAVO_STR("te2-delayed-unfused"),
    OCTAVO_STR("te2-current"), OCTAVO_STR("te2-block"),         OCTAVO_STR("te2-mx"),
    OCTAVO_STR("ocp-mx")};
const octavo_str kFormats[] = {OCTAVO_STR("default"), OCTAVO_STR("HYBRID"), OCTAVO_STR("E4M3"),
                               OCTAVO_STR("E5M2")};
const octavo_str kAlgorithms[] = {OCTAVO_STR("max"), OCTAVO_STR("most_recent")};
const octavo_str kOverrides[] = {OCTAVO_STR("none"),        OCTAVO_STR("fprop"),
                                 OCTAVO_STR("dgrad"),       OCTAVO_STR("wgrad"),
                                 OCTAVO_STR("fprop,dgrad"), OCTAVO_STR("fprop,wgrad"),
                                 OCTAVO_STR("dgrad,wgrad"), OCTAVO_STR("fprop,dgrad,wgrad")};
const octavo_str kBackward[] = {OCTAVO_STR("none"), OCTAVO_STR("high_precision"),
                                OCTAVO_STR("dequantized")};

}  // namespace

octavo_status list_options(const octavo_option_sink *sink) {
  const octavo_option options[] = {
      with_choices(option("recipe", text_value("delayed"),
                          "delayed: scales from the amax of earlier steps; current: from this "
                          "tensor; block: of 128 elements; mx: of 32 elements, powers of two"),
                   kRecipes),
      with_choices(option("profile", text_value("default"),
                          "whose arithmetic the recipe follows; default: Transformer Engine's; "
                          "te2-delayed-unfused: its Python path; ocp-mx: OCP Microscaling 1.0"),
                   kProfiles),
      with_choices(option("fp8_format", text_value("default"),
                          "HYBRID: float8_e4m3fn forward, float8_e5m2 gradients; E4M3: one format; "
                          "default: HYBRID for delayed and current, E4M3 for block and mx"),
                   kFormats),
      with_range(
          option("margin", integer_value(0), "the scale is divided by 2^margin; delayed only"), 0,
          30),
      with_range(option("interval", integer_value(1),
                        "steps between two computations of a scale; only 1 is possible"),
                 1, 1000000),
      with_range(option("amax_history_len", integer_value(1024),
                        "steps that amax looks back; delayed only"),
                 1, 65536),
      with_choices(option("amax_compute_algo", text_value("max"),
                          "max over the history, or the most_recent step; delayed only"),
                   kAlgorithms),
      option("scaling_factor_compute_algo", text_value(""),
             "only the empty text is possible: the profile names the arithmetic"),
      option("reduce_amax", bool_value(true),
             "amax is the maximum over all ranks; false: each rank keeps its own scales"),
      with_choices(option("override_linear_precision", text_value("none"),
                          "the products that run in the host's precision instead of FP8"),
                   kOverrides),
      with_choices(option("backward_override", text_value("none"),
                          "high_precision: backward uses the host's own tensors; dequantized: what "
                          "the codes of the forward pass stand for; not with delayed"),
                   kBackward),
      option("use_autocast_during_eval", bool_value(false),
             "true: an evaluation runs in FP8, too; false: in the host's precision"),
      option("use_mxfp8_block_scaling", bool_value(false), "true: the recipe is mx"),
      option("mxfp8_2d_quantization", bool_value(false),
             "weights have one scale for 32 x 32 elements; mx only"),
      option("current_scaling_power_2_scales", bool_value(false),
             "scales are rounded down to powers of two; current only"),
      option("block_scaling_fp32_scales", bool_value(false),
             "scales are not rounded to powers of two; block only"),
      with_real_range(option("amax_epsilon", real_value(0),
                             "a smaller amax counts as this; current and block only"),
                      0, 1e38),
      option("fp8_dpa", bool_value(false), "only false is possible: attention stays with the host"),
      option("fp8_mha", bool_value(false), "only false is possible: attention stays with the host"),
      option("telemetry", bool_value(false),
             "counts what each cast saturates and flushes to 0, and its signal and noise"),
  };
  return plugin::list_all(sink, options, std::size(options));
}

}  // namespace octavo::te
