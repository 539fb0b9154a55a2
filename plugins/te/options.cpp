// The texts of the options.
#include "options.h"

namespace octavo::te {

void Options::list(plugin::OptionList<Options> &l) {
  using O = Options;
  l.add("recipe", &O::recipe,
        "delayed: scales from the amax of earlier steps; current: from this tensor; block: of 128 "
        "elements; mx: of 32 elements, powers of two; nvfp4: codes of 4 bits, of 16 elements; "
        "rowwise: of rows, powers of two")
      .choices({"delayed", "current", "block", "mx", "nvfp4", "rowwise"})
      .per_linear();
  l.add("profile", &O::profile,
        "whose arithmetic the recipe follows; default: Transformer Engine's, but a delayed cast "
        "without a history has its own scale; te2-delayed-unfused: its Python path; ocp-mx: OCP "
        "Microscaling 1.0; torchao-rowwise: torchao's rowwise")
      .choices({"default", "te2-delayed-fused", "te2-delayed-unfused", "te2-current", "te2-block",
                "te2-mx", "ocp-mx", "te2-nvfp4", "torchao-rowwise"})
      .per_linear();
  l.add("fp8_format", &O::fp8_format,
        "HYBRID: float8_e4m3fn forward, float8_e5m2 gradients; E4M3: one format; default: HYBRID "
        "for delayed and current, E4M3 for block, mx, nvfp4 (its scales) and rowwise")
      .choices({"default", "HYBRID", "E4M3", "E5M2"})
      .per_linear();
  l.add("margin", &O::margin, "the scale is divided by 2^margin; delayed only")
      .range(0, 30)
      .per_linear();
  l.add("interval", &O::interval, "steps between two computations of a scale; only 1 is possible")
      .range(1, 1000000)
      .per_session("no linear has an interval: scales follow every step");
  l.add("amax_history_len", &O::amax_history_len, "steps that amax looks back; delayed only")
      .range(1, 65536)
      .per_linear();
  l.add("amax_compute_algo", &O::amax_compute_algo,
        "max over the history, or the most_recent step; delayed only")
      .choices({"max", "most_recent"})
      .per_linear();
  l.add("amax_overflow", &O::amax_overflow,
        "an infinite amax; te: it keeps the scale until it leaves the history; recover: it counts "
        "as 0; delayed only")
      .choices({"te", "recover"})
      .per_linear();
  l.add("scaling_factor_compute_algo", &O::scaling_factor_compute_algo,
        "must be empty; choose the arithmetic with `profile`")
      .per_session("no linear has a separate function: a configuration cannot hold one");
  l.add("reduce_amax", &O::reduce_amax,
        "amax is the maximum over all ranks; false: each rank keeps its own delayed scales")
      .per_session("ranks reduce amax for all linears, or for none");
  l.add("override_linear_precision", &O::override_linear_precision,
        "the products that use the host's precision instead of FP8")
      .choices({"none", "fprop", "dgrad", "wgrad", "fprop,dgrad", "fprop,wgrad", "dgrad,wgrad",
                "fprop,dgrad,wgrad"})
      .per_linear();
  l.add("backward_override", &O::backward_override,
        "high_precision: backward uses the host's own tensors; dequantized: what the codes of the "
        "forward pass stand for; not with delayed")
      .choices({"none", "high_precision", "dequantized"})
      .per_linear();
  l.add("use_autocast_during_eval", &O::use_autocast_during_eval,
        "true: an evaluation also runs in FP8; false: in the host's precision")
      .per_session("an evaluation is one of the whole model");
  l.add("use_mxfp8_block_scaling", &O::use_mxfp8_block_scaling, "true: the recipe is mx")
      .per_session(
          "use_mxfp8_block_scaling is for the whole session: give the linear recipe = \"mx\"");
  l.add("mxfp8_2d_quantization", &O::mxfp8_2d_quantization,
        "weights have one scale for 32 x 32 elements; mx only")
      .per_linear();
  l.add("current_scaling_power_2_scales", &O::current_scaling_power_2_scales,
        "scales are rounded down to powers of two; current only")
      .per_linear();
  l.add("block_scaling_fp32_scales", &O::block_scaling_fp32_scales,
        "scales are not rounded to powers of two; block only")
      .per_linear();
  l.add("amax_epsilon", &O::amax_epsilon,
        "a smaller amax counts as this; current and block only; rowwise has 1e-12")
      .range(0, 1e38)
      .per_linear();
  l.add("disable_rht", &O::disable_rht,
        "true: no random Hadamard transform of the operands of wgrad; nvfp4 only")
      .per_linear();
  l.add("disable_stochastic_rounding", &O::disable_stochastic_rounding,
        "true: gradients are also rounded to nearest; nvfp4 only")
      .per_linear();
  l.add("disable_2d_quantization", &O::disable_2d_quantization,
        "true: weights have one scale for 1 x 16 elements instead of 16 x 16; nvfp4 only")
      .per_linear();
  l.add(
       "gradient_rounding", &O::gradient_rounding,
       "stochastic: gradients are right on average, by numbers that follow from rounding_seed, the "
       "step, the layer and the element; default: stochastic for nvfp4, nearest for the others")
      .choices({"default", "nearest", "stochastic"})
      .per_linear();
  l.add("rounding_seed", &O::rounding_seed, "of stochastic roundings")
      .range(0, 4294967295)
      .per_linear();
  l.add("fp8_dpa", &O::fp8_dpa, "only false is possible: attention is not converted")
      .per_session("attention is not converted");
  l.add("fp8_mha", &O::fp8_mha, "only false is possible: attention is not converted")
      .per_session("attention is not converted");
  l.add("telemetry", &O::telemetry,
        "counts what each cast saturates and flushes to 0, and its signal and noise")
      .per_session("a host samples the casts of all linears, or of none");
}

}  // namespace octavo::te
