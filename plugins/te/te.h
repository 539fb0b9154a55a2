// te: what the files of this backend share: the recipe, the session, and the pointer lists.
//
// A session is data that setup writes and hot verbs only read. Slots are addressed by position in
// the lists below; host code passes their addresses to kernels and never looks behind them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/common/device.h"
#include "plugins/common/emitter.h"
#include "plugins/common/objects.h"

namespace octavo::te {

using plugin::kE4m3Max;
using plugin::kE5m2Max;

enum class Scaling { kDelayed, kCurrent };

struct Recipe {
  Scaling scaling = Scaling::kDelayed;
  uint32_t gradient_dtype = OCTAVO_E5M2;  // HYBRID; E4M3 uses one format throughout
  int32_t margin = 0;
  uint64_t amax_history_len = 1024;
  bool use_max = true;  // amax_compute_algo: "max", else "most_recent"
  uint32_t rule = OCTAVO_RULE_QUOTIENT;
};

// Positions in the pointer lists. Current scaling has the amax pools only, for telemetry; its scale
// positions do not exist, so they come last in each group of lists.
enum ParameterSlot : uint32_t {
  kParameterWeight = 0,  // native
  kParameterCache,       // codes [N, K]
  kParameterCacheT,      // codes [K, N]
  kParameterScaleInv,    // of both caches
  kParameterAmax,
  kParameterScale  // delayed only
};
enum LinearSlot : uint32_t {
  kLinearCache = 0,
  kLinearCacheT,
  kLinearScaleInv,
  kLinearNonfinite,
  kLinearXAmax,
  kLinearDyAmax,
  kLinearXScale,  // delayed only
  kLinearDyScale  // delayed only
};

struct Parameter : plugin::ParameterBase {
  using ParameterBase::ParameterBase;
  uint32_t weight_slot = OCTAVO_NONE;
  uint32_t cache_slot = OCTAVO_NONE;  // cache_t and scale_inv follow it
};
using Linear = plugin::LinearBase;

// The pooled slots of one operand (x, dy or w) of one seal: `count` columns, and where they stand
// in the session's list: amax, then history and scale when the recipe is delayed.
struct Pool {
  uint64_t count = 0;
  uint32_t position = 0;  // of amax in the session's list
  float format_max = kE4m3Max;
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

  bool delayed() const { return recipe.scaling == octavo::te::Scaling::kDelayed; }
};

namespace octavo::te {

// Sends an error to the host and returns its status. Setup only.
octavo_status refuse(const octavo_session &s, octavo_status status, std::string_view text);

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

}  // namespace octavo::te
