// Setup: whether a session can run, which layers it takes, and the slots of its recipe.
#include <cstdio>

#include "te.h"

namespace octavo::te {

using namespace plugin;

namespace {

// "N 20 -> 32, K 33 -> 48: 2.33 times the multiply-adds", or nothing without padding. M is padded,
// too, but differs from call to call.
std::string padding_of(const Device &device, const Parameter &w, uint32_t dtype) {
  const int64_t n = device.aligned(w.rows, dtype), k = device.aligned(w.cols, dtype);
  if (n == w.rows && k == w.cols) return {};
  std::string text;
  if (n != w.rows) text = "N " + std::to_string(w.rows) + " -> " + std::to_string(n);
  if (k != w.cols)
    text += (text.empty() ? "K " : ", K ") + std::to_string(w.cols) + " -> " + std::to_string(k);
  char factor[64];
  std::snprintf(factor, sizeof(factor), ": %.3g times the multiply-adds",
                static_cast<double>(n) * static_cast<double>(k) /
                    (static_cast<double>(w.rows) * static_cast<double>(w.cols)));
  return text + factor;
}

// A recipe with scales of blocks that the device multiplies.
Remedy another_recipe(const Device &device, Scaling scaling) {
  const auto multiplies = [&](uint32_t a, uint32_t b) {
    return device.multiplies({OCTAVO_E4M3FN, a}, {OCTAVO_E4M3FN, b});
  };
  if (scaling != Scaling::kMx && multiplies(OCTAVO_BLOCK_1X32, OCTAVO_BLOCK_1X32))
    return set_key("fp8.te.recipe", "\"mx\"");
  if (scaling != Scaling::kBlock && multiplies(OCTAVO_BLOCK_1X128, OCTAVO_BLOCK_128X128))
    return set_key("fp8.te.recipe", "\"block\"");
  return set_key("fp8.te.recipe", "\"current\"");
}

// What nvfp4 and stochastic rounding call besides casts and products as such.
void need_drafts(const Device &device, const Recipe &r, Verdicts &verdicts) {
  const auto has = [&](uint32_t call, uint32_t dtype) {
    octavo_ability cast{};
    cast.call = call;
    cast.dtype = dtype;
    cast.granularity = r.operand_granularity;
    return device.serves(device.ask(cast));
  };
  const bool counts = !r.is_stochastic() || device.executes(OCTAVO_KIND_COUNT);
  if (r.is_fp4()) {
    const bool transforms =
        (r.x_flags | r.dy_flags) == 0 || has(OCTAVO_KIND_QUANTIZE_FP4, r.operand_dtype);
    if (!transforms || !counts)
      verdicts.decline(OCTAVO_REASON_KERNEL,
                       "the kernels of this device lack the transform or the rounding of nvfp4",
                       another_recipe(device, r.scaling), "no octavo/draft/fp4.h");
  } else if (r.is_stochastic() && (!counts || !has(OCTAVO_KIND_ROUND_CODES, r.gradient_dtype))) {
    verdicts.decline(OCTAVO_REASON_KERNEL,
                     "the kernels of this device lack stochastic rounding of gradients",
                     set_key("fp8.te.gradient_rounding", "\"nearest\""),
                     "no round_codes of octavo/draft/rounding.h");
  }
}

}  // namespace

void Te::check(const Device &device, const Options &options, Verdicts &verdicts) {
  refuse_options(options, verdicts);
  const Recipe r = recipe_of(options);
  if (r.operand_granularity == OCTAVO_PER_TENSOR) {
    verdicts.need_casts({{r.operand_dtype}, {r.gradient_dtype}});
    verdicts.need_product({r.operand_dtype}, {r.operand_dtype});
    verdicts.need_product({r.gradient_dtype}, {r.operand_dtype});
  } else {
    const CodeFormat x{r.operand_dtype, r.operand_granularity},
        w{r.operand_dtype, r.weight_granularity};
    verdicts.need_product(x, w, another_recipe(device, r.scaling));
  }
  if (!verdicts.declined()) need_drafts(device, r, verdicts);
  if (verdicts.declined()) return;
  if (r.scaling == Scaling::kMx && r.gradient_dtype == OCTAVO_E5M2)
    verdicts.add({OCTAVO_ACCEPT, OCTAVO_REASON_OPTION,
                  "gradients in E5M2 with MX scales let training diverge (Megatron-Bridge, issue "
                  "638); E4M3 is the default of mx",
                  set_key("fp8.te.fp8_format", "\"E4M3\""), "fp8_format = \"HYBRID\""});
  if (device.has(OCTAVO_CAPS_EMULATED))
    verdicts.add({OCTAVO_ACCEPT_EMULATED, OCTAVO_REASON_NONE,
                  "FP8 arithmetic is emulated exactly, without FP8 hardware"});
  else
    verdicts.add(accept("FP8 runs on the device"));
}

Verdict Te::take_parameter(const Parameter &p) const {
  return accept(p.is_linear_weight() ? "weight of linears" : "is not converted");
}

Verdict Te::take_linear(const Linear &, const Parameter &w) const {
  Verdict v = accept(describe(recipe_));
  v.evidence = padding_of(device(), w, recipe_.operand_dtype);
  return v;
}

// What no product of the recipe reads is not stated.
void Te::declare(Slots &s) {
  recipe_ = recipe_of(options());
  const Recipe &r = recipe_;
  evaluate_in_host(!r.evaluates_in_fp8);

  Verbs native;
  if (r.casts_weight()) native.push_back(OCTAVO_VERB_QUANTIZE_WEIGHT);
  if (r.forward_reads_weight()) native.push_back(OCTAVO_VERB_FORWARD);
  if (r.dgrad == Operands::kPlain) native.push_back(OCTAVO_VERB_BACKWARD);
  weight_ = s.native_weight(native);

  WeightCodes codes;
  codes.dtype = r.operand_dtype;
  codes.granularity = r.weight_granularity;
  codes.packs_rows = r.may_pack_weight();
  if (r.fprop == Operands::kFp8) codes.rows_read_by.push_back(OCTAVO_VERB_FORWARD);
  if (r.dgrad == Operands::kDequantized) codes.rows_read_by.push_back(OCTAVO_VERB_BACKWARD);
  if (r.dgrad == Operands::kFp8) codes.columns_read_by.push_back(OCTAVO_VERB_BACKWARD);
  cache_ = s.weight_codes(codes);

  const auto observe = [&](const char *operand, uint32_t verb, SlotRule::Kind pool) {
    Observed o{operand, verb, pool, options().reduce_amax};
    if (r.delayed()) o.history = static_cast<uint64_t>(options().amax_history_len);
    o.counts = r.warms_up;
    o.statistics = options().telemetry;
    return s.observe(o);
  };
  if (r.casts_weight()) w_ = observe("w", OCTAVO_VERB_QUANTIZE_WEIGHT, SlotRule::Kind::kWeightPool);
  nonfinite_ = s.nonfinite(true);  // stochastic rounding; one slot for all variants
  if (r.is_stochastic()) {
    SlotRule count = Slots::rule(SlotRule::Kind::kSession, "count", OCTAVO_ROLE_COUNTER);
    count.flags = OCTAVO_SLOT_CHECKPOINT;
    count.is_shared = false;  // each variant counts its own
    count.read({OCTAVO_VERB_BACKWARD}).update({OCTAVO_VERB_END_STEP});
    count_ = s.floats(std::move(count));
  }
  if (r.casts_x()) x_ = observe("x", OCTAVO_VERB_FORWARD, SlotRule::Kind::kLinearPool);
  if (r.casts_dy()) dy_ = observe("dy", OCTAVO_VERB_BACKWARD, SlotRule::Kind::kLinearPool);
}

}  // namespace octavo::te

OCTAVO_PLUGIN(octavo::te::Te, check, take_parameter, take_linear, declare, cast_weight, weight_cast,
              forward, backward, finish_step)
