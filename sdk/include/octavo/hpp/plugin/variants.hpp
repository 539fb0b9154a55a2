// octavo/hpp/plugin/variants.hpp: the objects of a backend's class for options of single linears.
//
// Included by backend.hpp. A session has one object of the class for its own options, and one more,
// a variant, for each other set of options that a linear has. Each states its own slots; the rules
// of all stand in one list, in which handles count on.
#ifndef OCTAVO_HPP_PLUGIN_VARIANTS_HPP
#define OCTAVO_HPP_PLUGIN_VARIANTS_HPP

#include "octavo/hpp/plugin/backend.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// The slots of these options, after those of the variants before.
template <typename Self, typename OptionsType>
void Backend<Self, OptionsType>::state_slots(std::vector<SlotRule> before, uint32_t number) {
  Slots slots(device_, std::move(before), number);
  self().declare(slots);
  rules_ = slots.rules();
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    SlotRule &r = rules_[i];
    if (r.variant == number && r.role == OCTAVO_ROLE_NONFINITE) {
      flag_.rule = i;
      if (!casts_weights()) r.access[OCTAVO_VERB_QUANTIZE_WEIGHT] = OCTAVO_ACCESS_NONE;
    }
    // A verb under a wrong name leaves the default, which does nothing, in its place.
    if (!casts_weights() && r.access[OCTAVO_VERB_QUANTIZE_WEIGHT] == OCTAVO_ACCESS_WRITE)
      throw Error(OCTAVO_INTERNAL, "quantize_weight writes slot \"" + r.name +
                                       "\", but the backend has no cast_weight()");
    if (!finishes_steps() && r.access[OCTAVO_VERB_END_STEP] == OCTAVO_ACCESS_UPDATE)
      throw Error(OCTAVO_INTERNAL,
                  "end_step updates slot \"" + r.name + "\", but the backend has no finish_step()");
  }
}

// The variant with the options of this linear: one that is there, or `fresh`, which is the next.
// What was remarked about them is the evidence.
template <typename Self, typename OptionsType>
Verdict Backend<Self, OptionsType>::choose_variant(const octavo_linear_desc &d, uint32_t *number,
                                                   std::unique_ptr<Self> *fresh) const {
  if (d.option_count == 0) return accept();
  const OptionList<Options> list;
  if (Verdict refused = list.take_for_linear(d.options, d.option_count);
      refused.decision == OCTAVO_DECLINE)
    return refused;
  const Options own = list.parse(d.options, d.option_count, options_);
  const auto count = static_cast<uint32_t>(variants_.size());
  for (*number = 0; *number <= count; ++*number)
    if (list.are_equal(own, variant(*number).options())) return accept();
  // Stages of an optimizer or a reduction have the handles of the session's options only.
  if constexpr (HasOptimizer<Self>::value || HasGradients<Self>::value) {
    return decline(OCTAVO_REASON_OPTION,
                   "a backend that keeps gradients or moments has no options for single linears",
                   "leave the linear's own options out");
  } else {
    Verdicts verdicts(device_, nullptr);
    const Lacking lacking = judge(device_, own, verdicts);
    if (verdicts.declined()) return verdicts.first_refusal();
    *fresh = std::make_unique<Self>();
    (*fresh)->lacking_ = lacking;
    (*fresh)->device_ = device_;
    (*fresh)->options_ = own;
    (*fresh)->session_ = this;
    (*fresh)->state_slots(rules_, *number);
    Verdict answer = accept();
    answer.evidence = verdicts.remark();
    return answer;
  }
}

// One linear of odd sizes, whose products are padded where the kernels need it, with each dtype.
template <typename Self, typename OptionsType>
Lacking Backend<Self, OptionsType>::find_lacking(const Device &device, const Options &options) {
  Questions questions;
  Lacking lacking;
  auto sink = make<octavo_slot_sink>(OCTAVO_KIND_SLOT_SINK);
  sink.slot = [](void *, const octavo_slot *) -> octavo_status { return OCTAVO_OK; };
  sink.use = [](void *, const octavo_slot_use *) -> octavo_status { return OCTAVO_OK; };
  try {
    Self trial;
    trial.device_ = device;
    trial.device_.set_questions(&questions);
    trial.options_ = options;
    trial.state_slots({}, 0);
    for (size_t i = 0; i < kPlainDtypes.size(); ++i) {
      trial.objects_ = Objects();
      Parameter w;
      w.name = "weight";
      w.rows = 33, w.cols = 17;
      w.dtype = w.gradient_dtype = kPlainDtypes[i];
      w.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
      Linear l;
      l.name = "linear";
      if (trial.take_parameter(w).decision == OCTAVO_DECLINE ||
          trial.take_linear(l, w).decision == OCTAVO_DECLINE)
        continue;
      trial.objects_.parameters.push_back(std::move(w));
      trial.objects_.linears.push_back(std::move(l));
      if (Sealer(trial.rules_, trial.objects_, &sink).run(&trial.objects_) != OCTAVO_OK) continue;
      for (const uint32_t dtype : kPlainDtypes) {
        uint32_t flag = trial.declined_ & declined_flag(dtype);
        if (flag == 0) {
          trial.measure_all(dtype);
          const std::string call = questions.take_declined();
          if (!call.empty()) flag = declined_flag(dtype);
          if (lacking.call.empty()) lacking.call = call;
        }
        lacking.by_weight[i] |= flag;
      }
    }
  } catch (const Error &) {
    return lacking;  // opening or sealing the session shows why
  }
  return lacking;
}

template <typename Self, typename OptionsType>
void Backend<Self, OptionsType>::measure_all(uint32_t dtype) const {
  const Parameter &w = objects_.parameters[0];
  const Linear &l = objects_.linears[0];
  for (const Before next : {Before::kBackward, Before::kNothing, Before::kEvaluation})
    measure_forward(l, w, kMeasuredRows, next, false, dtype);
  bool reads_x = false;
  measure_backward(l, w, kMeasuredRows, &reads_x, dtype, OCTAVO_F32);
  if (device_.alignment() > 1)  // a padded dw is computed aside, in its dtype
    for (const uint32_t sums : kPlainDtypes)
      measure_backward(l, w, kMeasuredRows, &reads_x, dtype, sums);
  Pass weight(device_, true, 0, nullptr, nullptr, nullptr);
  self().cast_weight(weight, WeightCall(w, nullptr, true));
  Pass step(device_, true, 0, nullptr, nullptr, nullptr);
  finish(step, octavo_step_call{});
}

// One cache of a weight serves all of its linears.
template <typename Self, typename OptionsType>
Verdict Backend<Self, OptionsType>::agree_on_weight(const Parameter &w, uint32_t number,
                                                    Verdict answer) const {
  bool is_bound = w.id < objects_.sealed_parameters;
  if (is_bound && w.variant != number)
    return decline(OCTAVO_REASON_OPTION, "the weight was sealed for other options of linears",
                   "add the linear before the seal of its weight");
  for (const Linear &other : objects_.linears) is_bound = is_bound || other.weight == w.id;
  if (is_bound && w.variant != number)
    return decline(OCTAVO_REASON_OPTION, "it shares its weight with a linear of other options",
                   "give all linears of one weight the same options");
  return answer;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
