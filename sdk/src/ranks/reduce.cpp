// octavo_reduce_gradients: drives the stages of one bucket for a host with blocking collectives.
//
// The whole plan is checked before its first stage runs: a rank that stopped between two stages
// would leave the others waiting in their collective.
#include <algorithm>
#include <utility>
#include <vector>

#include "octavo/draft/reduction.h"
#include "sdk/src/base/dtype.h"
#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/base/sized.h"
#include "sdk/src/ranks/rank_call.h"
#include "sdk/src/run/run.h"

namespace {

constexpr const char *kDomain = "octavo.reduce";

template <typename... Part>
[[noreturn]] void fail(octavo_status status, const Part &...text) {
  throw octavo::Failure(status, kDomain, text...);
}

struct Plan {
  std::vector<uint32_t> parameters;
  std::vector<octavo_gradient_stage> stages;
  uint64_t buffer_bytes = 0;
  uint64_t state_bytes = 0;
};

// The plan of the last bucket on this thread, whose memory the next one uses again: a step that
// repeats the buckets of the one before allocates nothing.
class Lease {
 public:
  Lease() : plan_(std::exchange(kept(), Plan())) {
    plan_.parameters.clear();
    plan_.stages.clear();
    plan_.buffer_bytes = plan_.state_bytes = 0;
  }
  ~Lease() { kept() = std::move(plan_); }
  Lease(const Lease &) = delete;
  Lease &operator=(const Lease &) = delete;
  Plan &operator*() { return plan_; }
  Plan *operator->() { return &plan_; }

 private:
  static Plan &kept() {
    thread_local Plan plan;
    return plan;
  }
  Plan plan_;
};

octavo_status collect_stage(void *ctx, const octavo_gradient_stage *given) {
  try {
    static_cast<Plan *>(ctx)->stages.push_back(octavo::copy_known_fields(*given));
  } catch (...) {
    return OCTAVO_NO_RESOURCE;  // no exception crosses the plugin
  }
  return OCTAVO_OK;
}

// Refuses what this host could not carry out, and returns the bytes of the longer buffer.
uint64_t check_stage(size_t number, const octavo_gradient_stage &s, uint32_t world) {
  const std::string stage = octavo::concat("stage ", number);
  if (s.collective > OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM)
    fail(OCTAVO_UNSUPPORTED, stage, " requests collective ", s.collective,
         ", unknown to this host");
  const uint64_t count = std::max(s.send_count, s.recv_count);
  if (s.collective == OCTAVO_COLLECTIVE_NONE && count == 0) return 0;
  const uint64_t width = octavo::element_bytes(s.dtype);
  if (width == 0)
    fail(OCTAVO_UNSUPPORTED, stage, " exchanges dtype ", s.dtype, ", unknown to this host");
  if (count > static_cast<uint64_t>(INT64_MAX) / width)
    fail(OCTAVO_INTERNAL, stage, ": expected a buffer of fewer than 2^63 bytes, found ", count,
         " elements of ", width, " bytes: correct the backend");
  if (!octavo::counts_fit(s.collective, s.send_count, s.recv_count, world))
    fail(OCTAVO_INTERNAL, stage, ": ", s.send_count, " elements to send and ", s.recv_count,
         " to receive do not fit collective ", s.collective, " of ", world,
         " ranks: correct the backend");
  return count * width;
}

const octavo_gradients &gradients_of(const octavo_run &r) {
  const octavo::LoadedPlugin *plugin = r.plugin();
  if (plugin == nullptr || !plugin->gradients)
    fail(OCTAVO_UNSUPPORTED, "the chosen backend has no " OCTAVO_GRADIENTS_ID
                             ": its gradients are the host's own, reduce them there");
  return *r.tables().gradients;
}

// Fills `plan` for its parameters; a status that is not OCTAVO_OK is the backend's.
octavo_status make_plan(const octavo_run &r, uint32_t world, Plan &plan) {
  auto asked = octavo::make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
  asked.world = world;
  asked.parameters = plan.parameters.data();
  asked.count = plan.parameters.size();
  asked.ctx = &plan;
  asked.stage = collect_stage;
  const octavo_status status = gradients_of(r).plan_reduction(r.session(), &asked);
  if (status != OCTAVO_OK) return status;
  for (size_t i = 0; i < plan.stages.size(); ++i)
    plan.buffer_bytes = std::max(plan.buffer_bytes, check_stage(i, plan.stages[i], world));
  plan.state_bytes = asked.state_bytes;
  return OCTAVO_OK;
}

void require(const void *buffer, const char *name, uint64_t bytes) {
  if (buffer == nullptr && bytes != 0)
    fail(OCTAVO_INVALID, "octavo_reduce_gradients: expected ", name, " of ", bytes,
         " bytes, found null: octavo_reduction_bytes has the sizes");
}

}  // namespace

octavo_status octavo_reduction_bytes(const octavo_run *r, const uint32_t *parameters,
                                     uint64_t count, uint32_t world, uint64_t *buffer_bytes,
                                     uint64_t *state_bytes) {
  return octavo::call_guarded(r, [&](const octavo_run &run) -> octavo_status {
    const char *function = "octavo_reduction_bytes";
    if (count != 0) octavo::require_not_null(parameters, function, "parameters");
    octavo::require_not_null(buffer_bytes, function, "buffer_bytes");
    octavo::require_not_null(state_bytes, function, "state_bytes");
    if (world < 1)
      fail(OCTAVO_INVALID, "octavo_reduction_bytes: expected at least 1 rank, found 0");
    Lease plan;
    if (count != 0) plan->parameters.assign(parameters, parameters + count);
    const octavo_status status = make_plan(run, world, *plan);
    if (status != OCTAVO_OK) return status;
    *buffer_bytes = plan->buffer_bytes;
    *state_bytes = plan->state_bytes;
    return OCTAVO_OK;
  });
}

octavo_status octavo_reduce_gradients(octavo_run *r, const octavo_parameter_item *items,
                                      uint64_t count, const octavo_collective *c, void *send,
                                      void *recv, void *state, void *stream) {
  return octavo::call_guarded(r, [&](const octavo_run &run) -> octavo_status {
    if (count != 0) octavo::require_not_null(items, "octavo_reduce_gradients", "items");
    const octavo_collective ranks = octavo::own_collective(c, kDomain, "octavo_reduce_gradients");
    const octavo_gradients &gradients = gradients_of(run);
    Lease plan;
    for (uint64_t i = 0; i < count; ++i) plan->parameters.push_back(items[i].parameter);
    octavo_status status = make_plan(run, ranks.world, *plan);
    if (status != OCTAVO_OK) return status;
    require(send, "send", plan->buffer_bytes);
    require(recv, "recv", plan->buffer_bytes);
    require(state, "state", plan->state_bytes);
    auto call = octavo::make<octavo_gradient_call>(OCTAVO_KIND_GRADIENT_CALL);
    call.world = ranks.world;
    call.stream = stream;
    call.items = items;
    call.count = count;
    call.recv = recv;
    call.send = send;
    call.state = state;
    for (const octavo_gradient_stage &s : plan->stages) {
      status = gradients.run_stage(run.session(), &call);
      if (status != OCTAVO_OK) return status;  // the backend has sent the reason
      if (s.collective != OCTAVO_COLLECTIVE_NONE)
        status = ranks.run(ranks.ctx, s.collective, s.dtype, send, s.send_count, recv, s.recv_count,
                           stream);
      if (status != OCTAVO_OK)
        fail(status, "octavo_reduce_gradients: stage ", call.stage,
             ": the host's collective answered status ", status);
      ++call.stage;
    }
    return OCTAVO_OK;
  });
}
