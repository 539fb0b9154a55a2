// What the report says about memory: torch's own tensors and Octavo's slots.
#include <octavo/hpp/roles.hpp>

#include <set>

#include "trainer.h"

namespace torch_gpt {

std::map<std::string, uint64_t> slot_bytes(const octavo::torch::Session &session) {
  std::map<std::string, uint64_t> bytes;
  for (const auto &[role, count] : session.bytes_by_role()) bytes[octavo::role_name(role)] += count;
  return bytes;
}

gpt::RankMemory memory_of(Model &model, octavo::torch::Prepared &optimizer) {
  std::set<std::string> linear_weights;
  for (const octavo::torch::Layer &layer : optimizer.layers())
    linear_weights.insert(layer.name + ".weight");
  gpt::RankMemory memory;
  const auto add = [&](const std::string &owner, gpt::MemoryPart part, uint64_t bytes) {
    memory.model.bytes[part] += bytes;
    if (linear_weights.count(owner) != 0) memory.linear.bytes[part] += bytes;
  };
  std::set<std::pair<std::string, uint32_t>> in_slots;
  bool keeps_moments = false;
  for (const octavo::torch::Slot &slot : optimizer.session().slots()) {
    if (!slot.tensor.defined()) continue;
    in_slots.emplace(slot.owner, slot.role);
    keeps_moments = keeps_moments || slot.role == OCTAVO_ROLE_EXP_AVG;
    add(slot.owner, gpt::part_of(slot.role, !slot.owner.empty()), slot.tensor.nbytes());
  }
  for (const auto &item : model->named_parameters()) {
    const auto count = static_cast<uint64_t>(item.value().numel());
    memory.model.parameters += count;
    if (linear_weights.count(item.key()) != 0) memory.linear.parameters += count;
    const uint64_t bytes = count * item.value().element_size();
    std::vector<uint32_t> roles = {OCTAVO_ROLE_WEIGHT, OCTAVO_ROLE_GRADIENT};
    if (!keeps_moments) roles.insert(roles.end(), {OCTAVO_ROLE_EXP_AVG, OCTAVO_ROLE_EXP_AVG_SQ});
    for (const uint32_t role : roles)
      if (in_slots.count({item.key(), role}) == 0) add(item.key(), gpt::part_of(role, true), bytes);
  }
  return memory;
}

}  // namespace torch_gpt
