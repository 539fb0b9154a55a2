// What the report says about memory: torch's own tensors and Octavo's slots.
#include <octavo/octavo.h>

#include <set>

#include "trainer.h"

namespace torch_gpt {
namespace {

struct Role {
  uint32_t role;
  const char *name;
  gpt::MemoryPart part;
};
const Role kRoles[] = {
    {OCTAVO_ROLE_WEIGHT, "weight", gpt::kMemoryWeight},
    {OCTAVO_ROLE_MASTER_WEIGHT, "master_weight", gpt::kMemoryMasterWeight},
    {OCTAVO_ROLE_GRADIENT, "gradient", gpt::kMemoryGradient},
    {OCTAVO_ROLE_EXP_AVG, "exp_avg", gpt::kMemoryExpAvg},
    {OCTAVO_ROLE_EXP_AVG_SQ, "exp_avg_sq", gpt::kMemoryExpAvgSq},
    {OCTAVO_ROLE_COUNTER, "step", gpt::kMemoryStep},
    {OCTAVO_ROLE_WEIGHT_CACHE, "weight_cache", gpt::kMemoryWeightCache},
};

const Role *role_of(uint32_t role) {
  for (const Role &r : kRoles)
    if (r.role == role) return &r;
  return nullptr;
}

}  // namespace

std::map<std::string, uint64_t> slot_bytes(const octavo::torch::Session &session) {
  std::map<std::string, uint64_t> bytes;
  for (const auto &[role, count] : session.bytes_by_role()) {
    const Role *known = role_of(role);
    bytes[known != nullptr ? known->name : "fp8_state"] += count;
  }
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
    const Role *known = role_of(slot.role);
    add(slot.owner, known != nullptr ? known->part : gpt::kMemoryFp8State, slot.tensor.nbytes());
  }
  for (const auto &item : model->named_parameters()) {
    const auto count = static_cast<uint64_t>(item.value().numel());
    memory.model.parameters += count;
    if (linear_weights.count(item.key()) != 0) memory.linear.parameters += count;
    const uint64_t bytes = count * item.value().element_size();
    for (const Role &r : kRoles) {
      const bool tensor = r.role == OCTAVO_ROLE_WEIGHT || r.role == OCTAVO_ROLE_GRADIENT;
      const bool moment = r.role == OCTAVO_ROLE_EXP_AVG || r.role == OCTAVO_ROLE_EXP_AVG_SQ;
      if (!tensor && !(moment && !keeps_moments)) continue;
      if (in_slots.count({item.key(), r.role}) == 0) add(item.key(), r.part, bytes);
    }
  }
  return memory;
}

}  // namespace torch_gpt
