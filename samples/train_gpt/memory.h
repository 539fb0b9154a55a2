// What the parameters of one rank cost: bytes of the tensors that outlive a step, by purpose.
//
// Slots of the backend and the program's own tensors count alike; activations, gradients of
// activations, workspaces and the copies that a GPU needs of the program's own tensors do not
// count.
#ifndef TRAIN_GPT_MEMORY_H
#define TRAIN_GPT_MEMORY_H

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpt {

class Model;
class OctavoRun;

enum MemoryPart : size_t {
  kMemoryWeight,
  kMemoryGradient,
  kMemoryExpAvg,
  kMemoryExpAvgSq,
  kMemoryMasterWeight,
  kMemoryStep,
  kMemoryWeightCache,
  kMemoryFp8State,  // scales, histories and what else belongs to no part above
  kMemoryParts
};
extern const std::array<const char *, kMemoryParts> kMemoryNames;

struct MemoryUse {
  uint64_t parameters = 0;  // elements
  std::array<uint64_t, kMemoryParts> bytes = {};

  MemoryUse &operator+=(const MemoryUse &other);  // bytes only: the same parameters elsewhere
  // Weights, gradients and optimizer states: what the optimizer's format decides.
  double training_bytes_per_parameter() const;
  double bytes_per_parameter() const;
};

struct RankMemory {
  MemoryUse model;
  MemoryUse linear;  // the weights of linear layers alone, without what a whole session shares
};

// After the optimizer was built. run: null without Octavo.
RankMemory memory_of(Model &model, const OctavoRun *run);

// Bytes in slots of this rank by role, what is native left out.
std::map<std::string, uint64_t> slot_bytes(const OctavoRun &run);

// The sum over ranks, and the rank that holds most.
RankMemory summed(const std::vector<RankMemory> &ranks);
size_t fullest_rank(const std::vector<RankMemory> &ranks);

}  // namespace gpt

#endif
