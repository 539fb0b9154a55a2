// What msamp keeps: the table of MS-AMP's formats as slots.
#include "msamp.h"

namespace octavo::msamp {
namespace {

using plugin::SlotRule;

using When = bool (*)(const Parameter &);

// The weight of a linear is msamp's. Else weight and gradient are the host's.
bool is_owned(const Parameter &p) {
  return p.has_linear;
}
bool is_trained(const Parameter &p) {
  return !p.is_frozen();
}
bool is_owned_and_trained(const Parameter &p) {
  return is_owned(p) && is_trained(p);
}

// A tensor [N, K] of the parameters for which `when` holds.
SlotRule tensor(const char *name, uint32_t role, uint32_t dtype, When when) {
  SlotRule r = Slots::rule(SlotRule::Kind::kParameter, name, role);
  r.dtype = dtype;
  r.shape = Slots::own_shape;
  r.when = when;
  return r;
}
// The host's own tensor.
SlotRule native(const char *name, uint32_t role, When when) {
  SlotRule r = tensor(name, role, 0, when);
  r.flags = OCTAVO_SLOT_NATIVE;
  return r;
}
// f32 is stored as it is, everything else with a scale.
plugin::CodesSlot stored(Slots &s, const SlotRule &r, uint32_t granularity = OCTAVO_PER_TENSOR) {
  if (r.dtype != OCTAVO_F32) return s.scaled(r, granularity);
  plugin::CodesSlot slot;
  slot.rows = s.matrix(r).rule;
  return slot;
}
// One f32 of the session, in the list of every parameter with a gradient slot.
SlotRule of_reductions(const char *name) {
  SlotRule r = Slots::rule(SlotRule::Kind::kSession, name, OCTAVO_ROLE_OTHER);
  r.when = is_owned_and_trained;
  return r;
}

}  // namespace

// A list is in the order of these statements: weight, gradient, states.
void Msamp::declare(Slots &s) {
  declare_weights(s);
  declare_gradients(s);
  declare_states(s);
  plugin::Observed operand;
  operand.history = options().amax_history_len;
  operand.counts = true;
  operand.statistics = options().telemetry;
  operand.operand = "x", operand.verb = OCTAVO_VERB_FORWARD;
  x_ = s.observe(operand);
  operand.operand = "dy", operand.verb = OCTAVO_VERB_BACKWARD;
  dy_ = s.observe(operand);
}

void Msamp::declare_weights(Slots &s) {
  const Formats f = options().formats();
  const bool cached = options().weight_cache, fp8 = options().fp8_weights();
  SlotRule weight = tensor("weight", OCTAVO_ROLE_WEIGHT, f.weight, is_owned);
  weight.flags = OCTAVO_SLOT_CHECKPOINT;
  weight.update({OCTAVO_VERB_OPTIMIZER_STEP});
  if (cached) weight.read({OCTAVO_VERB_QUANTIZE_WEIGHT});
  // Linears read the stored weight when it is what they multiply, or when there is no cache.
  if (fp8 || !cached) weight.read({OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD});
  // A step writes it from its master, which a frozen one has not.
  if (f.master_weight != 0)
    weight.adjust = [](const Parameter &p, octavo_slot *slot) {
      if (is_trained(p)) slot->access[OCTAVO_VERB_OPTIMIZER_STEP] = OCTAVO_ACCESS_WRITE;
    };
  weight_ = stored(s, weight);
  if (f.master_weight != 0) {
    SlotRule master =
        tensor("master_weight", OCTAVO_ROLE_MASTER_WEIGHT, f.master_weight, is_owned_and_trained);
    master.flags = OCTAVO_SLOT_CHECKPOINT;
    master.shard = OCTAVO_SHARD_WHOLE;
    master_ = stored(s, master.update({OCTAVO_VERB_OPTIMIZER_STEP}));
  }
  if (cached) {
    // Codes in the two orders that products read. Weights in E4M3 are their own [N, K] codes,
    // unless the kernels need them padded.
    plugin::WeightCodes codes;
    codes.rows_read_by = {OCTAVO_VERB_FORWARD};
    codes.columns_read_by = {OCTAVO_VERB_BACKWARD};
    codes.when = is_owned;
    if (fp8) {
      codes.scale_rule = weight_.scale_inv;
      codes.rows_when = [this](const Parameter &p) { return is_padded(p); };
    }
    cache_ = s.weight_codes(codes);
  }
  SlotRule host =
      native("weight", OCTAVO_ROLE_WEIGHT, [](const Parameter &p) { return !is_owned(p); });
  host.adjust = [](const Parameter &p, octavo_slot *slot) {
    if (p.is_frozen()) slot->access[OCTAVO_VERB_OPTIMIZER_STEP] = OCTAVO_ACCESS_READ;
  };
  s.matrix(host.update({OCTAVO_VERB_OPTIMIZER_STEP}));
}

void Msamp::declare_gradients(Slots &s) {
  SlotRule gradient =
      tensor("gradient", OCTAVO_ROLE_GRADIENT, options().gradient_dtype(), is_owned_and_trained);
  gradient.update({OCTAVO_VERB_BACKWARD, OCTAVO_VERB_REDUCE}).read({OCTAVO_VERB_OPTIMIZER_STEP});
  gradient_ = stored(s, gradient);
  SlotRule host = native("gradient", OCTAVO_ROLE_GRADIENT,
                         [](const Parameter &p) { return !is_owned(p) && is_trained(p); });
  host.dtype_of = [](const Parameter &p) { return p.gradient_dtype; };
  s.matrix(host.read({OCTAVO_VERB_OPTIMIZER_STEP}));
  nonfinite_ = s.nonfinite();

  for (auto &[slot, name] :
       {std::pair{&saturated_, "reduce/saturated"}, std::pair{&added_, "reduce/added"}}) {
    SlotRule count = of_reductions(name);
    count.accumulate(OCTAVO_VERB_REDUCE, OCTAVO_COMBINE_SUM);
    *slot = s.floats(count.update({OCTAVO_VERB_END_STEP}));
  }
  if (options().reduction_prescale() == Prescale::kAuto) {
    SlotRule prescale = of_reductions("reduce/prescale");
    prescale.flags = OCTAVO_SLOT_CHECKPOINT;
    // Up to 16 ranks cannot saturate with it; the rule grows it from there.
    prescale.initial = 1.0 / 16;
    prescale.read({OCTAVO_VERB_REDUCE}).update({OCTAVO_VERB_END_STEP});
    prescale_ = s.floats(prescale);
  }
  if (options().parity()) {
    SlotRule scale =
        Slots::rule(SlotRule::Kind::kParameter, "gradient/reduce_scale", OCTAVO_ROLE_OTHER);
    scale.when = is_owned_and_trained;
    scale.flags = OCTAVO_SLOT_CHECKPOINT;
    scale.initial = 1;
    reduce_scale_ = s.floats(scale.update({OCTAVO_VERB_REDUCE}));
  }
}

// Adam's. A rank that owns a parameter has all of them.
void Msamp::declare_states(Slots &s) {
  const auto state = [&](SlotRule r) {
    r.flags = OCTAVO_SLOT_CHECKPOINT;
    r.shard = OCTAVO_SHARD_WHOLE;
    return r.update({OCTAVO_VERB_OPTIMIZER_STEP});
  };
  const Formats f = options().formats();
  const uint32_t groups = options().state_granularity();
  const auto keeps = [this](const Parameter &p) {
    return options().keeps_moments(p.name, p.rows * p.cols);
  };
  const auto moment = [&](const char *name, uint32_t role, uint32_t dtype) {
    SlotRule codes = state(tensor(name, role, dtype, is_trained)), plain = codes;
    codes.when = [keeps](const Parameter &p) { return is_trained(p) && !keeps(p); };
    plain.when = [keeps](const Parameter &p) { return is_trained(p) && keeps(p); };
    plain.dtype = OCTAVO_F32;
    stored(s, codes, groups);
    stored(s, plain);
  };
  moment("exp_avg", OCTAVO_ROLE_EXP_AVG, f.exp_avg);
  moment("exp_avg_sq", OCTAVO_ROLE_EXP_AVG_SQ, f.exp_avg_sq);
  if (options().bounds_scales()) {
    SlotRule amax = Slots::rule(SlotRule::Kind::kParameter, "state_amax", OCTAVO_ROLE_OTHER);
    amax.cols = OCTAVO_AMAX_COUNT;
    amax.when = is_trained;
    amax_ = s.floats(state(amax));
  }
  SlotRule step = Slots::rule(SlotRule::Kind::kParameter, "step", OCTAVO_ROLE_COUNTER);
  step.dtype = OCTAVO_I32;
  step.when = is_trained;
  s.matrix(state(step));
}

}  // namespace octavo::msamp
