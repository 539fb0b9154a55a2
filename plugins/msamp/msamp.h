// msamp: what the files of this backend share: the recipe, the session, and where slots stand.
//
// MS-AMP's method (FP8-LM, arXiv 2310.18313): weights, gradients and optimizer states live in 8 and
// 16 bits with power-of-two scales. A session is data that setup writes and all other verbs only
// read. Slots are addressed by position; host code never looks behind an address.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/gradients.h"
#include "plugins/common/device.h"
#include "plugins/common/emitter.h"
#include "plugins/common/objects.h"

namespace octavo::msamp {

using plugin::kE4m3Max;
using plugin::kE5m2Max;
using plugin::kF16Max;

// O1: f16 weights, fp32 moments. O2: moments E4M3 and f16. O3: weights E4M3 with an f16 master.
enum class Level { kO1, kO2, kO3 };
enum class Prescale { kNone, kSqrt, kFull, kAuto };

struct Recipe {
  Level level = Level::kO2;
  bool parity = false;  // profile msamp04: MS-AMP 0.4.0 with its quirks
  uint64_t amax_history_len = 16;
  bool decay_is_l2 = false;  // optimizer = "adam"
  bool amsgrad = false;
  // OCTAVO_PER_TENSOR: as the level says. Else both moments are E4M3 in groups.
  uint32_t state_granularity = OCTAVO_PER_TENSOR;
  bool fp32_gradients = false;
  Prescale prescale = Prescale::kAuto;
  uint64_t one_shot_bytes = 262144;
  bool weight_cache = true;

  uint32_t rule() const { return parity ? OCTAVO_RULE_MSAMP04 : OCTAVO_RULE_MSAMP; }
};

// A slot, and its position in the list of one object; both OCTAVO_NONE when it does not exist.
struct Place {
  uint32_t slot = OCTAVO_NONE;
  uint32_t position = OCTAVO_NONE;
};

// The address in a list; null when the slot does not exist, the host left it out, or there is no
// list, as when only shapes are asked for.
inline void *at(void *const *slots, const Place &place) {
  return slots == nullptr || place.position == OCTAVO_NONE ? nullptr : slots[place.position];
}
inline float *float_at(void *const *slots, const Place &place) {
  return static_cast<float *>(at(slots, place));
}

// A tensor as it is stored. `scale_inv` does not exist for plain tensors.
struct Stored {
  Place data;
  Place scale_inv;
  uint32_t dtype = 0;
  uint32_t granularity = OCTAVO_PER_TENSOR;
  bool exists() const { return data.position != OCTAVO_NONE; }
};

inline octavo_tensor tensor_at(void *const *slots, const Stored &stored, int64_t rows,
                               int64_t cols) {
  return {at(slots, stored.data), rows, cols, cols, stored.dtype, 0};
}

struct Parameter : plugin::ParameterBase {
  using ParameterBase::ParameterBase;
  // Set at seal. Owned: a linear's weight, kept in slots; else weight and gradient are the host's.
  bool is_owned = false;
  Stored weight;
  Stored master;  // O3; at the other levels the weight is its own master
  Stored gradient;
  Stored exp_avg;
  Stored exp_avg_sq;
  Place step;
  Place cache;    // codes [N, K]
  Place cache_t;  // codes [K, N]
  Place cache_scale_inv;
  Place reduce_scale;  // msamp04 only
  Place prescale;
  Place saturated;
  Place added;

  const Stored &stepped() const { return master.exists() ? master : weight; }
};

// The delayed scale of one operand of one linear.
struct Delayed {
  Place amax;
  Place scale;
  Place counter;
};

struct Linear : plugin::LinearBase {
  using LinearBase::LinearBase;
  // Set at seal: positions in the linear's list.
  Stored w;  // the stored weight, where the verbs read it
  Place cache;
  Place cache_t;
  Place cache_scale_inv;
  Stored gradient;
  Place nonfinite;
  Delayed x;
  Delayed dy;
};

// The pooled slots of x or dy of one seal; from `position` on in the session's list: amax, history,
// scale, counter.
struct Pool {
  uint64_t count = 0;
  uint32_t position = 0;
  float format_max = kE4m3Max;
};

}  // namespace octavo::msamp

struct octavo_session {
  octavo::plugin::Device device;
  octavo::msamp::Recipe recipe;
  std::vector<octavo::msamp::Parameter> parameters;
  std::vector<octavo::msamp::Linear> linears;
  std::vector<octavo::msamp::Pool> pools;
  uint32_t sealed_parameters = 0;
  uint32_t sealed_linears = 0;
  octavo::plugin::Emitted emitted;
  // Slots of the session; positions are those in its own list.
  octavo::msamp::Place nonfinite;
  octavo::msamp::Place saturated;  // of the elements that reductions added up
  octavo::msamp::Place added;
  octavo::msamp::Place prescale;
};

namespace octavo::msamp {

// Sends an error to the host and returns its status. It allocates nothing: hot verbs use it with a
// static text.
octavo_status refuse(const octavo_session &s, octavo_status status, std::string_view text);
// A parameter id that is not sealed, outside of hot verbs.
octavo_status refuse_id(const octavo_session &s, const char *verb, uint32_t id);

octavo_status list_options(const octavo_option_sink *sink);
Recipe parse_recipe(const octavo_session_desc &desc);

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

octavo_status optimizer_workspace_bytes(const octavo_session *s, const uint32_t *parameters,
                                        uint64_t count, uint64_t *bytes);
octavo_status optimizer_step(const octavo_session *s, const octavo_optimizer_call *c);
octavo_status sum_of_squares(const octavo_session *s, const octavo_norm_call *c);
octavo_status prepare_step(const octavo_session *s, const octavo_prepare_call *c);
octavo_status read_parameter(const octavo_session *s, const octavo_parameter_call *c);
octavo_status write_parameter(const octavo_session *s, const octavo_parameter_call *c);

octavo_status plan_reduction(const octavo_session *s, octavo_gradient_plan *plan);
octavo_status run_stage(const octavo_session *s, const octavo_gradient_call *c);

}  // namespace octavo::msamp
