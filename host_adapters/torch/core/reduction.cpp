// plan_reduction and run_stage.
#include "octavo/draft/reduction.h"
#include "reduction.h"

#include <algorithm>
#include <new>

#include "items.h"

namespace octavo::core {
namespace {

octavo_status take(void *ctx, const octavo_gradient_stage *given) {
  octavo_gradient_stage stage;
  OCTAVO_TAKE(stage, given);
  try {
    static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(stage);
  } catch (const std::bad_alloc &) {
    return OCTAVO_NO_RESOURCE;  // no exception crosses the plugin
  }
  return OCTAVO_OK;
}

octavo_status collect(const Entry &e, const uint32_t *parameters, uint64_t count, uint32_t world,
                      std::vector<octavo_gradient_stage> *stages, uint64_t *state_bytes) {
  auto plan = make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
  plan.world = world;
  plan.parameters = parameters;
  plan.count = count;
  plan.ctx = stages;
  plan.stage = take;
  const octavo_status status = e.gradients->plan_reduction(e.session, &plan);
  *state_bytes = plan.state_bytes;
  return status;
}

uint64_t bytes_of(View t) {
  return static_cast<uint64_t>(t.numel()) * t.element_size();
}

void check_interface(const Entry &e) {
  if (e.gradients == nullptr)
    raise(OCTAVO_UNSUPPORTED, "run_stage: octavo.gradients/1: the backend has none");
}

}  // namespace

octavo_status plan_reduction(const Entry &e, const uint32_t *parameters, uint64_t count,
                             uint32_t world, Reduction *out) noexcept {
  try {
    Reduction found;
    octavo_status status = octavo_reduction_bytes(e.run, parameters, count, world,
                                                  &found.buffer_bytes, &found.state_bytes);
    uint64_t state_bytes = 0;
    if (status == OCTAVO_OK)
      status = collect(e, parameters, count, world, &found.stages, &state_bytes);
    if (status == OCTAVO_OK) *out = std::move(found);
    return status;
  } catch (const std::bad_alloc &) {
    return OCTAVO_NO_RESOURCE;
  }
}

void check_buffers(const Entry &e, const std::vector<int64_t> &parameters, int64_t world, View recv,
                   View send, View state) {
  check_interface(e);
  const std::vector<uint32_t> ids(parameters.begin(), parameters.end());
  std::vector<octavo_gradient_stage> stages;
  uint64_t state_bytes = 0;
  check(collect(e, ids.data(), ids.size(), static_cast<uint32_t>(world), &stages, &state_bytes),
        "plan_reduction");
  uint64_t longest_send = 0, longest_recv = 0;
  for (const octavo_gradient_stage &s : stages) {
    const uint64_t bytes = OCTAVO_DTYPE_BITS(s.dtype) / 8;
    longest_send = std::max(longest_send, s.send_count * bytes);
    longest_recv = std::max(longest_recv, s.recv_count * bytes);
  }
  const auto check_bytes = [&e](View t, uint64_t expected, const char *name) {
    check_dense(e, t, name);
    const uint64_t found = bytes_of(t);
    if (found >= expected) return;
    raise(OCTAVO_INVALID, std::string("run_stage: ") + name + ": expected " +
                              std::to_string(expected) +
                              " bytes, which the longest stage of this "
                              "bucket has, found " +
                              std::to_string(found));
  };
  check_bytes(send, longest_send, "send");
  check_bytes(recv, longest_recv, "recv");
  check_bytes(state, state_bytes, "state");
}

void run_stage(const Entry &e, const std::vector<int64_t> &parameters, int64_t stage, int64_t world,
               View recv, View send, View state) {
  check_interface(e);
  const Items items(e, OCTAVO_VERB_REDUCE, {parameters, {}, {}});
  auto call = call_of<octavo_gradient_call>(e, OCTAVO_KIND_GRADIENT_CALL, Uses::kNothing);
  call.stage = static_cast<uint32_t>(stage);
  call.world = static_cast<uint32_t>(world);
  call.items = items.data();
  call.count = items.count();
  call.recv = recv.data();
  call.send = send.mutable_data();
  call.state = state.mutable_data();
  check(e.gradients->run_stage(e.session, &call), "run_stage");
  e.calls[OCTAVO_VERB_REDUCE].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace octavo::core
