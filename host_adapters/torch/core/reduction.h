// octavo.gradients/1 on torch's tensors: averages of gradients in slots over ranks, in stages with
// a collective of the host between two of them.
#pragma once

#include <cstdint>
#include <vector>

#include "entry.h"

namespace octavo::core {

struct Reduction {
  std::vector<octavo_gradient_stage> stages;
  uint64_t buffer_bytes = 0;  // of send and of recv
  uint64_t state_bytes = 0;
};

// The reduction of `parameters` [count] over `world` ranks, as liboctavo accepts it: it refuses a
// plan that would stop a rank between two stages. Throws nothing; the diagnostics of this thread
// have the reason of a failure.
octavo_status plan_reduction(const Entry &e, const uint32_t *parameters, uint64_t count,
                             uint32_t world, Reduction *out) noexcept;

// Throws unless the buffers have the lengths that the reduction of `parameters` needs. It plans the
// reduction again.
void check_buffers(const Entry &e, const std::vector<int64_t> &parameters, int64_t world, View recv,
                   View send, View state);

// One stage. recv, send, state: buffers of the lengths of plan_reduction, which are not looked at.
// Throws.
void run_stage(const Entry &e, const std::vector<int64_t> &parameters, int64_t stage, int64_t world,
               View recv, View send, View state);

}  // namespace octavo::core
