// Setup: whether a session can run, what it answers about the objects of the model, and the plugin.
#include "msamp.h"

namespace octavo::msamp {

using plugin::accept;
using plugin::decline;

// One verdict: the first reason against it, or how FP8 runs.
void Msamp::check(const plugin::Device &device, const Options &o, plugin::Verdicts &verdicts) {
  verdicts.need_casts({{OCTAVO_E4M3FN}, {OCTAVO_E5M2}, {OCTAVO_F16}});
  verdicts.need_product({OCTAVO_E4M3FN}, {OCTAVO_E4M3FN});
  verdicts.need_product({OCTAVO_E5M2}, {OCTAVO_E4M3FN});
  verdicts.need_calls({{OCTAVO_KIND_DEQUANTIZE, "dequantize", OCTAVO_E4M3FN},
                       {OCTAVO_KIND_DEQUANTIZE, "dequantize", OCTAVO_F16},
                       {OCTAVO_KIND_COMPUTE_AMAX, "compute_amax", OCTAVO_F32},
                       {OCTAVO_KIND_SCALE_FROM_AMAX, "scale_from_amax"},
                       {OCTAVO_KIND_DELAYED_SCALE_UPDATE, "delayed_scale_update"},
                       {OCTAVO_KIND_SUM, "sum_rows", OCTAVO_F32},
                       {OCTAVO_KIND_COPY, "copy"},
                       {OCTAVO_KIND_ADAM_STEP, "adam_step", OCTAVO_E4M3FN},
                       {OCTAVO_KIND_GRADIENT_SCALE, "gradient_scale"}});
  if (verdicts.declined()) return;
  if (o.amsgrad)
    return verdicts.decline(
        OCTAVO_REASON_OPTION,
        "amsgrad is not possible: its maximum of second moments has no low-bit form",
        plugin::set_key("fp8.msamp.amsgrad", "false"));
  if (o.parity() && o.optimizer == Decay::kAdam && o.state_format != States::kLevel)
    return verdicts.decline(
        OCTAVO_REASON_OPTION, "msamp04 drops the L2 decay from moments in its own formats only",
        plugin::set_key("fp8.msamp.state_format", "\"level\"", ", or profile = \"msamp-fixed\""));
  if (o.parity() && o.roundings().any())
    return verdicts.decline(
        OCTAVO_REASON_OPTION, "msamp04 rounds to nearest even, as MS-AMP does",
        plugin::set_key("fp8.msamp.profile", "\"msamp-fixed\"",
                        ", or state_rounding = \"nearest\" and weight_rounding = \"nearest\""));
  if (o.parity() && o.state_scale == StateScale::kBound)
    return verdicts.decline(
        OCTAVO_REASON_OPTION, "msamp04 takes scales from the new values, as MS-AMP does",
        plugin::set_key("fp8.msamp.state_scale", "\"exact\"", ", or profile = \"msamp-fixed\""));
  if (o.bounds_scales() && !device.executes(OCTAVO_KIND_ADAM_ONE_PASS))
    return verdicts.decline(OCTAVO_REASON_KERNEL, "the kernels take scales from new values only",
                            plugin::set_key("fp8.msamp.state_scale", "\"exact\""));
  if (o.roundings().any() && !device.executes(OCTAVO_KIND_ADAM_ROUNDED))
    return verdicts.decline(OCTAVO_REASON_KERNEL,
                            "the kernels round moments and weights to nearest even only",
                            plugin::set_key("fp8.msamp.state_rounding", "\"nearest\"",
                                            " and weight_rounding = \"nearest\""));
  if (!device.casts_to({OCTAVO_E4M3FN, o.state_granularity()}))
    return verdicts.decline(OCTAVO_REASON_KERNEL, "the kernels lack optimizer states in groups",
                            plugin::set_key("fp8.msamp.state_format", "\"level\""));
  if (o.reduction_prescale() == Prescale::kAuto && !device.executes(OCTAVO_KIND_PRESCALE_UPDATE))
    return verdicts.decline(OCTAVO_REASON_KERNEL, "the kernels lack the automatic pre-scale",
                            plugin::set_key("fp8.msamp.prescale", "\"sqrt\""));
  verdicts.accept(device.has(OCTAVO_CAPS_EMULATED)
                      ? "FP8 arithmetic is emulated exactly, without FP8 hardware"
                      : "FP8 runs on the device");
}

Verdict Msamp::take_dtypes(const Parameter &p) const {
  Verdict v = Backend::take_dtypes(p);
  if (v.decision == OCTAVO_DECLINE)
    v.text = "a weight and a gradient in f32, bf16 or f16 are expected";
  return v;
}

Verdict Msamp::take_parameter(const Parameter &p) const {
  Verdict v = accept(p.is_linear_weight() ? "weight of linears, kept by the backend"
                                          : "is not converted; moments by the level");
  if (options().keeps_moments(p.name, p.rows * p.cols))
    v.evidence = "moments stay in fp32 by state_skip or state_min_size";
  return v;
}

Verdict Msamp::take_linear(const Linear &, const Parameter &w) const {
  if (w.id < objects().sealed_parameters && !w.has_linear)
    return decline(OCTAVO_REASON_POLICY,
                   "the weight was sealed without a linear, so it stays the host's tensor",
                   "add the linear before the seal of its weight");
  Verdict v = accept(options().fp8_weights() ? "weight E4M3, x E4M3, dy E5M2, dw E4M3"
                                             : "weight f16 cast to E4M3, x E4M3, dy E5M2, dw E4M3");
  if (is_padded(w)) v.evidence = "N or K is padded inside to the kernels' alignment";
  return v;
}

}  // namespace octavo::msamp

OCTAVO_PLUGIN(octavo::msamp::Msamp, check, take_dtypes, take_parameter, take_linear, declare,
              cast_weight, forward, backward, reduce, step, write, finish_step)
