// Counts what exists: a buffer that was released or a slot that another rank keeps adds nothing.
#include "memory.h"

#include <set>
#include <utility>

#include "model.h"

namespace gpt {
namespace {

const std::pair<uint32_t, const char *> kRoles[] = {
    {OCTAVO_ROLE_WEIGHT, "weight"},
    {OCTAVO_ROLE_MASTER_WEIGHT, "master_weight"},
    {OCTAVO_ROLE_GRADIENT, "gradient"},
    {OCTAVO_ROLE_EXP_AVG, "exp_avg"},
    {OCTAVO_ROLE_EXP_AVG_SQ, "exp_avg_sq"},
    {OCTAVO_ROLE_SCALE, "scale"},
    {OCTAVO_ROLE_SCALE_INV, "scale_inv"},
    {OCTAVO_ROLE_AMAX, "amax"},
    {OCTAVO_ROLE_AMAX_HISTORY, "amax_history"},
    {OCTAVO_ROLE_COUNTER, "counter"},
    {OCTAVO_ROLE_WEIGHT_CACHE, "weight_cache"},
    {OCTAVO_ROLE_NONFINITE, "nonfinite"},
    {OCTAVO_ROLE_SATURATED, "saturated"},
    {OCTAVO_ROLE_UNDERFLOW, "underflow"},
    {OCTAVO_ROLE_SIGNAL, "signal"},
    {OCTAVO_ROLE_NOISE, "noise"},
    {OCTAVO_ROLE_OTHER, "other"},
};

MemoryPart part_of(const octavo_slot &slot) {
  switch (slot.role) {
    case OCTAVO_ROLE_WEIGHT: return kMemoryWeight;
    case OCTAVO_ROLE_GRADIENT: return kMemoryGradient;
    case OCTAVO_ROLE_EXP_AVG: return kMemoryExpAvg;
    case OCTAVO_ROLE_EXP_AVG_SQ: return kMemoryExpAvgSq;
    case OCTAVO_ROLE_MASTER_WEIGHT: return kMemoryMasterWeight;
    case OCTAVO_ROLE_WEIGHT_CACHE: return kMemoryWeightCache;
    default: break;
  }
  const bool step = slot.owner_kind == OCTAVO_OWNER_PARAMETER && text(slot.name) == "step";
  return step ? kMemoryStep : kMemoryFp8State;
}

uint64_t bytes_of(const octavo_slot &slot) {
  return static_cast<uint64_t>(slot.rows) * static_cast<uint64_t>(slot.cols) *
         (OCTAVO_DTYPE_BITS(slot.dtype) / 8);
}

void count(const Parameter &p, MemoryUse &use) {
  use.parameters += p.count();
  use.bytes[kMemoryWeight] += p.value.bytes();
  use.bytes[kMemoryGradient] += p.grad.bytes();
  use.bytes[kMemoryExpAvg] += p.exp_avg.bytes();
  use.bytes[kMemoryExpAvgSq] += p.exp_avg_sq.bytes();
}

// Calls each(slot) for every slot that this rank allocated.
template <typename Each>
void for_slots(const OctavoRun &run, Each &&each) {
  for (uint32_t id = 0; run.store() != nullptr && id < octavo_slot_count(run.handle()); ++id) {
    const octavo_slot *slot = octavo_get_slot(run.handle(), id);
    const bool native = (slot->flags & OCTAVO_SLOT_NATIVE) != 0;
    if (!native && octavo_store_address(run.store(), id) != nullptr) each(*slot);
  }
}

}  // namespace

const std::array<const char *, kMemoryParts> kMemoryNames = {
    "weight",        "gradient", "exp_avg",      "exp_avg_sq",
    "master_weight", "step",     "weight_cache", "FP8 state"};

MemoryUse &MemoryUse::operator+=(const MemoryUse &other) {
  for (size_t i = 0; i < kMemoryParts; ++i) bytes[i] += other.bytes[i];
  return *this;
}

double MemoryUse::training_bytes_per_parameter() const {
  uint64_t sum = 0;
  for (size_t i = kMemoryWeight; i <= kMemoryStep; ++i) sum += bytes[i];
  return static_cast<double>(sum) / static_cast<double>(parameters);
}

double MemoryUse::bytes_per_parameter() const {
  uint64_t sum = 0;
  for (const uint64_t b : bytes) sum += b;
  return static_cast<double>(sum) / static_cast<double>(parameters);
}

RankMemory memory_of(Model &model, const OctavoRun *run) {
  RankMemory memory;
  std::set<uint32_t> linear_ids;
  for (const Parameter *p : model.parameters()) count(*p, memory.model);
  for (Linear *linear : model.linears()) {
    count(linear->weight(), memory.linear);
    linear_ids.insert(linear->weight().id);
  }
  if (run == nullptr) return memory;
  for_slots(*run, [&](const octavo_slot &slot) {
    const MemoryPart part = part_of(slot);
    memory.model.bytes[part] += bytes_of(slot);
    if (slot.owner_kind == OCTAVO_OWNER_PARAMETER && linear_ids.count(slot.owner) > 0) {
      memory.linear.bytes[part] += bytes_of(slot);
    }
  });
  return memory;
}

std::map<std::string, uint64_t> slot_bytes(const OctavoRun &run) {
  std::map<std::string, uint64_t> bytes;
  if (run.store() == nullptr) return bytes;
  for (const auto &[role, name] : kRoles) {
    if (const uint64_t b = octavo_store_bytes(run.store(), role); b > 0) bytes[name] = b;
  }
  return bytes;
}

RankMemory summed(const std::vector<RankMemory> &ranks) {
  RankMemory sum = ranks.front();
  for (size_t i = 1; i < ranks.size(); ++i) {
    sum.model += ranks[i].model;
    sum.linear += ranks[i].linear;
  }
  return sum;
}

size_t fullest_rank(const std::vector<RankMemory> &ranks) {
  size_t fullest = 0;
  for (size_t i = 1; i < ranks.size(); ++i) {
    const bool more =
        ranks[i].model.bytes_per_parameter() > ranks[fullest].model.bytes_per_parameter();
    if (more) fullest = i;
  }
  return fullest;
}

}  // namespace gpt
