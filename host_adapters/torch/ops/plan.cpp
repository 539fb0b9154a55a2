// The stages of one gradient reduction, for hosts in Python: plan_reduction as a C function
// without callbacks. liboctavo checks the plan first, so that no rank stops between two stages.
#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "host.h"
#include "registry.h"

namespace {

octavo_status collect(void *ctx, const octavo_gradient_stage *given) {
  octavo_gradient_stage stage;
  OCTAVO_TAKE(stage, given);
  try {
    static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(stage);
  } catch (const std::bad_alloc &) {
    return OCTAVO_RESOURCE;  // no exception crosses the plugin
  }
  return OCTAVO_OK;
}

}  // namespace

// What octavo_torch_plan returns next to the stages.
struct octavo_torch_plan_sizes {
  uint64_t stage_count;
  uint64_t buffer_bytes;  // of send and of recv
  uint64_t state_bytes;
};

// The reduction of `parameters` [count] over `world` ranks. The first `capacity` stages are copied;
// sizes->stage_count is their number. On failure nothing is written, and
// octavo_torch_take_diagnostics has the reason: OCTAVO_WRONG_STATE for a run that was released,
// OCTAVO_UNSUPPORTED for a backend whose gradients are the host's own. Setup; any thread.
OCTAVO_EXPORT octavo_status octavo_torch_plan(int64_t run, const uint32_t *parameters,
                                              uint64_t count, uint32_t world,
                                              octavo_gradient_stage *stages, uint64_t capacity,
                                              octavo_torch_plan_sizes *sizes) {
  try {
    std::shared_ptr<const octavo::ops::Entry> entry;
    try {
      entry = octavo::ops::find(run);
    } catch (const std::exception &) {  // as torch throws it
      octavo::ops::diagnose("run " + std::to_string(run) +
                            ": expected the number of an open run, found none; the model was "
                            "closed: call octavo.prepare on a new one");
      return OCTAVO_WRONG_STATE;
    }
    octavo_torch_plan_sizes found = {};
    octavo_status status = octavo_reduction_bytes(entry->run, parameters, count, world,
                                                  &found.buffer_bytes, &found.state_bytes);
    if (status != OCTAVO_OK) return status;
    std::vector<octavo_gradient_stage> collected;
    octavo_gradient_plan plan = {};
    plan.size = sizeof plan;
    plan.kind = OCTAVO_KIND_GRADIENT_PLAN;
    plan.world = world;
    plan.parameters = parameters;
    plan.count = count;
    plan.ctx = &collected;
    plan.stage = collect;
    status = entry->gradients->plan_reduction(entry->session, &plan);
    if (status != OCTAVO_OK) return status;
    found.stage_count = collected.size();
    std::copy_n(collected.begin(), std::min<uint64_t>(capacity, collected.size()), stages);
    *sizes = found;
    return OCTAVO_OK;
  } catch (const std::bad_alloc &) {
    return OCTAVO_RESOURCE;
  }
}
