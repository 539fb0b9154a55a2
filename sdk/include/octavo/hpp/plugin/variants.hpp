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
    judge(device_, own, verdicts);
    if (verdicts.declined()) return verdicts.first_refusal();
    *fresh = std::make_unique<Self>();
    (*fresh)->device_ = device_;
    (*fresh)->options_ = own;
    (*fresh)->session_ = this;
    (*fresh)->state_slots(rules_, *number);
    Verdict answer = accept();
    answer.evidence = verdicts.remark();
    return answer;
  }
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
