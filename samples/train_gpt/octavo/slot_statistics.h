// What the slots of a backend tell, for people only: nothing in the training depends on it.
//
// What the parameters of one rank cost: bytes of the tensors that outlive a step, by purpose. Slots
// of the backend and the program's own tensors count alike; activations, gradients of activations,
// workspaces and the copies that a GPU needs of the program's own tensors do not count. And of a
// step: amax and scale of a few layers, how the reduction of gradients went, and how well the codes
// represent the values that they were made of.
#ifndef TRAIN_GPT_SLOT_STATISTICS_H
#define TRAIN_GPT_SLOT_STATISTICS_H

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../model/model.h"
#include "octavo_run.h"

namespace gpt {

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
// Of a slot of this role; of_parameter: that a parameter owns.
MemoryPart part_of(uint32_t role, bool of_parameter);

struct MemoryUse {
  uint64_t parameters = 0;  // elements
  std::array<uint64_t, kMemoryParts> bytes = {};

  // Weights, gradients and optimizer states: what the optimizer's format decides.
  double training_bytes_per_parameter() const { return bytes_per_parameter(kMemoryStep); }
  double bytes_per_parameter(MemoryPart last = kMemoryFp8State) const;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(MemoryUse, parameters, bytes)
};

struct RankMemory {
  MemoryUse model;
  MemoryUse linear;  // the weights of linear layers alone, without what a whole session shares

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(RankMemory, model, linear)
};

// After the optimizer was built.
RankMemory memory_of(Model &model, const OctavoRun &run);
// Bytes in slots of this rank by role, what is native left out.
std::map<std::string, uint64_t> slot_bytes(const OctavoRun &run);

// The sum of the bytes over ranks, and the rank that holds most.
RankMemory summed(const std::vector<RankMemory> &ranks);
size_t fullest_rank(const std::vector<RankMemory> &ranks);

// How one operand of one layer was cast in one step. The counts are of elements.
struct CastRecord {
  std::string operand;          // "x", "w" or "dy"
  std::string tensor;           // the layer, of w the weight
  std::optional<double> amax;   // largest absolute value of the step
  std::optional<double> scale;  // that it was multiplied by; none: made within the cast
  double saturated = 0.0, underflow = 0.0;
  // 10 log10(signal / noise); none: nothing was lost, or nothing cast
  std::optional<double> sqnr_db;
};

class SlotStatistics {
 public:
  // Finds the columns of the pools of this run, if it has any. Telemetry follows x and dy of up to
  // four of these layers.
  SlotStatistics(const OctavoRun &run, const std::vector<std::string> &layers);

  // Both are taken before end_step: the amax of the step and the scale that it used.
  // {"amax": {"x/block0.qkv": 3.1, ...}, "scale": {...}, "reduce": {"saturated": 0, ...}}: the last
  // are how many values the reduction of gradients saturated, and its pre-scale. Null when there is
  // nothing to follow.
  nlohmann::json telemetry() const;
  // One record per operand and tensor, where the backend has slots of the roles SATURATED,
  // UNDERFLOW, SIGNAL and NOISE, for instance te with telemetry = true. With several ranks, sums
  // over them once their slots are combined: of `w`, which every rank casts, the count of one rank
  // times their number.
  std::vector<CastRecord> casts() const;
  bool has_casts() const;

 private:
  // One tensor of one operand, its numbers on the run's device by role.
  struct Column {
    std::string operand, tensor;
    std::map<uint32_t, const float *> at;

    bool counts() const {
      return std::any_of(at.begin(), at.end(), [](auto &a) { return is_cast_statistic(a.first); });
    }
  };
  Column &column(const std::string &operand, const std::string &tensor);
  std::optional<double> read(const Column &c, uint32_t role) const;

  const octavo::Memory &memory_;
  std::vector<Column> columns_;
  std::vector<std::string> followed_;            // layers
  std::map<std::string, const float *> reduce_;  // by key of telemetry
};

}  // namespace gpt

#endif
