// te: what the files of this backend share: the session, its objects, and where their slots stand.
//
// A session is data that setup writes and hot verbs only read. Slots are addressed by their
// position in an object's list; host code passes their addresses to kernels and never looks behind
// them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/common/device.h"
#include "plugins/common/emitter.h"
#include "plugins/common/objects.h"
#include "recipe.h"

namespace octavo::te {

using plugin::kE4m3Max;
using plugin::kE5m2Max;

// A position in an object's list; OCTAVO_NONE where the recipe has no such slot.
using Position = uint32_t;

// The address in a list; null when there is no such slot, or the host left it out.
inline void *at(void *const *slots, Position position) {
  return position == OCTAVO_NONE || slots == nullptr ? nullptr : slots[position];
}
inline float *float_at(void *const *slots, Position position) {
  return static_cast<float *>(at(slots, position));
}

// How well casts of one operand represent it: the order of the fields of octavo_quantize_stats.
enum Statistic : uint32_t { kSaturated, kUnderflow, kSignal, kNoise, kStatisticCount };

// The columns of one operand (x, dy or w) in its pools.
struct Observed {
  Position amax = OCTAVO_NONE;
  Position scale = OCTAVO_NONE;  // delayed only
  std::array<Position, kStatisticCount> statistics{OCTAVO_NONE, OCTAVO_NONE, OCTAVO_NONE,
                                                   OCTAVO_NONE};
};

// Codes of a weight: positions of the codes and of their scale_inv.
struct Cache {
  Position codes = OCTAVO_NONE;
  Position scale_inv = OCTAVO_NONE;
};

// Where the weight's tensors stand in the list of a parameter or of a linear.
struct WeightPlaces {
  Position native = OCTAVO_NONE;
  Cache rows;     // codes [N, K]
  Cache columns;  // codes [K, N]; per tensor, both have one scale_inv
};

struct Parameter : plugin::ParameterBase {
  using ParameterBase::ParameterBase;
  WeightPlaces slots;   // ids of slots, not positions: what a linear's list repeats
  WeightPlaces places;  // positions in the parameter's list
  Observed observed;
  // The cache for fprop is in the kernels' panel order: where the seal had a linear of this weight,
  // whose plan states the bytes for packing.
  bool is_packed = false;
};

struct Linear : plugin::LinearBase {
  using LinearBase::LinearBase;
  WeightPlaces weight_places;
  Position nonfinite = OCTAVO_NONE;
  Observed x;
  Observed dy;
};

// One operand's pools of one seal: `count` columns, and where they stand in the session's list.
struct Pool {
  uint64_t count = 0;
  Position amax = OCTAVO_NONE;  // delayed: history and scale follow
  float format_max = kE4m3Max;
  std::array<Position, kStatisticCount> statistics{OCTAVO_NONE, OCTAVO_NONE, OCTAVO_NONE,
                                                   OCTAVO_NONE};
};

}  // namespace octavo::te

struct octavo_session {
  octavo::plugin::Device device;
  octavo::te::Recipe recipe;
  std::vector<octavo::te::Parameter> parameters;
  std::vector<octavo::te::Linear> linears;
  std::vector<octavo::te::Pool> pools;
  uint32_t sealed_parameters = 0;
  uint32_t sealed_linears = 0;
  octavo::plugin::Emitted emitted;
  uint32_t nonfinite_slot = OCTAVO_NONE;  // position 0 of the session's list
  // Texts of verdicts, which live as long as the session; copies of it share them.
  std::vector<std::shared_ptr<const std::string>> texts;

  // Whether weight caches for fprop may be in the kernels' panel order.
  bool packs_weight_rows() const { return recipe.may_pack_weight_rows() && device.pack_rows() > 0; }
  // OCTAVO_GEMM_... of fprop on the cache of this weight.
  static uint32_t fprop_layout(const octavo::te::Parameter &w) {
    return w.is_packed ? uint32_t{OCTAVO_GEMM_B_PACKED} : uint32_t{0};
  }
  const octavo::te::Parameter &weight_of(uint32_t linear) const {
    return parameters[linears[linear].weight];
  }
};

namespace octavo::te {

// Sends an error to the host and returns its status. With a static text for hot verbs, too.
octavo_status refuse(const octavo_session &s, octavo_status status, std::string_view text);

octavo_status check_session(const octavo_session_desc *desc, const octavo_verdict_sink *sink);
octavo_status open_session(const octavo_session_desc *desc, octavo_session **out);
void close_session(octavo_session *s);
octavo_status add_parameter(octavo_session *s, const octavo_parameter_desc *d, octavo_verdict *v,
                            uint32_t *id);
octavo_status add_linear(octavo_session *s, const octavo_linear_desc *d, octavo_verdict *v,
                         uint32_t *id);
octavo_status seal(octavo_session *s, const octavo_slot_sink *sink);
octavo_status linear_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out);
octavo_status quantize_weight(const octavo_session *s, const octavo_weight_call *c);
octavo_status linear_forward(const octavo_session *s, const octavo_forward_call *c);
octavo_status linear_backward(const octavo_session *s, const octavo_backward_call *c);
octavo_status end_step(const octavo_session *s, const octavo_step_call *c);

}  // namespace octavo::te
