// octavo/hpp/plugin/stored.hpp: the tensors of one parameter by role, in the formats of their
// slots.
//
// For the stages of the optimizer and of the reduction of gradients, which need no handle: a rule
// of declare() has its role, its dtype, and the rule of its scale_inv.
#ifndef OCTAVO_HPP_PLUGIN_STORED_HPP
#define OCTAVO_HPP_PLUGIN_STORED_HPP

#include "octavo/hpp/plugin/calls.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

class ParameterCall : public Addresses {
 public:
  ParameterCall(const Parameter &p, const std::vector<SlotRule> &rules, void *const *slots,
                bool measuring = false)
      : Addresses(p.places, slots, measuring), parameter(p), rules_(rules) {}

  const Parameter &parameter;

  int64_t elements() const { return parameter.rows * parameter.cols; }
  // The statement that this parameter's slot of a role comes from; null: it has none.
  const SlotRule *rule(uint32_t role) const {
    const uint32_t r = index_of(role);
    return r == OCTAVO_NONE ? nullptr : &rules_[r];
  }
  bool has(uint32_t role) const { return index_of(role) != OCTAVO_NONE; }
  // The address of a role's slot; null: no such slot, or none on this rank.
  void *data(uint32_t role) const { return (*this)[FloatSlot{index_of(role)}]; }
  // The tensor alone, and the f32 scales alone; dtype 0 and null: none.
  octavo_tensor tensor(uint32_t role) const {
    const uint32_t r = index_of(role);
    return r == OCTAVO_NONE ? octavo_tensor{} : (*this)[MatrixSlot{r}];
  }
  float *scale_inv(uint32_t role) const {
    const uint32_t r = index_of(role);
    return r == OCTAVO_NONE ? nullptr : (*this)[FloatSlot{rules_[r].scale_rule}];
  }
  // As its slots hold it: `rows`, with the scale_inv of the codes or, for a plain tensor, one of
  // dtype 0. Null data: no such slot, or none on this rank.
  Codes stored(uint32_t role) const {
    const uint32_t r = index_of(role);
    if (r == OCTAVO_NONE) return {};
    const uint32_t scale = rules_[r].scale_rule;
    Codes codes = (*this)[CodesSlot{r, OCTAVO_NONE, scale, scale, rules_[r].granularity}];
    if (scale == OCTAVO_NONE) codes.scale_inv = {};
    return codes;
  }
  // The role that the optimizer steps: the weight is its own master where there is no other.
  uint32_t stepped() const {
    return has(OCTAVO_ROLE_MASTER_WEIGHT) ? OCTAVO_ROLE_MASTER_WEIGHT : OCTAVO_ROLE_WEIGHT;
  }

 private:
  uint32_t index_of(uint32_t role) const {
    return role < parameter.by_role.size() ? parameter.by_role[role] : OCTAVO_NONE;
  }

  const std::vector<SlotRule> &rules_;
};

// The address of f32 scales in a kernel's call; null for a plain tensor.
inline float *floats_of(const octavo_scale &scale) {
  return static_cast<float *>(scale.data);
}
// A scale in a kernel's call; null for a plain tensor.
inline const octavo_scale *if_scaled(const octavo_scale &scale) {
  return scale.dtype != 0 ? &scale : nullptr;
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
