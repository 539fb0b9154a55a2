// The stages of one gradient reduction, for hosts in Python: without callbacks.
#include <algorithm>
#include <exception>

#include "host_adapters/torch/core/host.h"
#include "host_adapters/torch/core/reduction.h"
#include "registry.h"

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
  std::shared_ptr<const octavo::core::Entry> entry;
  try {
    entry = octavo::ops::find(run);
  } catch (const std::exception &) {  // as torch throws it
    octavo::core::diagnose("run " + std::to_string(run) +
                           ": expected the number of an open run, found none; the model was "
                           "closed: call octavo.prepare on a new one");
    return OCTAVO_WRONG_STATE;
  }
  octavo::core::Reduction found;
  const octavo_status status =
      octavo::core::plan_reduction(*entry, parameters, count, world, &found);
  if (status != OCTAVO_OK) return status;
  *sizes = {found.stages.size(), found.buffer_bytes, found.state_bytes};
  std::copy_n(found.stages.begin(), std::min<uint64_t>(capacity, found.stages.size()), stages);
  return OCTAVO_OK;
}
