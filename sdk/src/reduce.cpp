// octavo_reduce_gradients: drives the stages of one bucket for a host with blocking collectives.
#include <algorithm>
#include <cstring>
#include <vector>

#include "run.h"
#include "wall.h"

namespace {

// What plan_reduction said about one bucket.
struct Plan {
  std::vector<octavo_gradient_stage> stages;
  uint64_t state_bytes = 0;
};

octavo_status collect_stage(void *ctx, const octavo_gradient_stage *s) {
  return octavo::guarded(nullptr, [&] {
    octavo_gradient_stage stage{};
    std::memcpy(&stage, s, std::min<size_t>(s->size, sizeof(stage)));
    static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(stage);
    return OCTAVO_OK;
  });
}

uint64_t bytes_of(uint64_t count, uint32_t dtype) {
  const uint64_t width = OCTAVO_DTYPE_BITS(dtype) / 8;
  if (width != 0 && count > INT64_MAX / width)
    throw octavo::Failure(OCTAVO_INVALID, "octavo.reduce",
                          "a stage of " + std::to_string(count) + " elements is too long");
  return count * width;
}

const octavo_gradients &gradients_of(const octavo_run *r) {
  const octavo_gradients *gradients = octavo_gradients_of(r);
  if (gradients == nullptr)
    throw octavo::Failure(OCTAVO_UNSUPPORTED, "octavo.reduce",
                          "the chosen backend has no " OCTAVO_GRADIENTS_ID
                          ": its gradients are the host's own, reduce them there");
  return *gradients;
}

// Fills `plan`, whose memory is used again. Every stage is checked before one of them runs.
octavo_status make_plan(const octavo_run *r, const uint32_t *parameters, uint64_t count,
                        uint32_t world, Plan *plan) {
  plan->stages.clear();
  octavo_gradient_plan request{};
  request.size = sizeof(request);
  request.kind = OCTAVO_KIND_GRADIENT_PLAN;
  request.world = world;
  request.parameters = parameters;
  request.count = count;
  request.ctx = &plan->stages;
  request.stage = collect_stage;
  const octavo_status status = gradients_of(r).plan_reduction(r->session(), &request);
  plan->state_bytes = request.state_bytes;
  for (size_t i = 0; status == OCTAVO_OK && i < plan->stages.size(); ++i) {
    const octavo_gradient_stage &s = plan->stages[i];
    if (s.collective > OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM)
      throw octavo::Failure(OCTAVO_UNSUPPORTED, "octavo.reduce",
                            "stage " + std::to_string(i) + " asks for collective " +
                                std::to_string(s.collective) + ", unknown to this host");
    bytes_of(s.send_count, s.dtype);
    bytes_of(s.recv_count, s.dtype);
  }
  return status;
}

}  // namespace

octavo_status octavo_reduction_bytes(const octavo_run *r, const uint32_t *parameters,
                                     uint64_t count, uint32_t world, uint64_t *buffer_bytes,
                                     uint64_t *state_bytes) {
  if (r == nullptr || buffer_bytes == nullptr || state_bytes == nullptr ||
      (parameters == nullptr && count != 0))
    return OCTAVO_INVALID;
  return octavo::guarded(r->host(), [&]() -> octavo_status {
    Plan plan;
    const octavo_status status = make_plan(r, parameters, count, world, &plan);
    if (status != OCTAVO_OK) return status;
    *buffer_bytes = 0;
    *state_bytes = plan.state_bytes;
    for (const octavo_gradient_stage &s : plan.stages)
      *buffer_bytes = std::max(
          {*buffer_bytes, bytes_of(s.send_count, s.dtype), bytes_of(s.recv_count, s.dtype)});
    return OCTAVO_OK;
  });
}

octavo_status octavo_reduce_gradients(octavo_run *r, const octavo_parameter_item *items,
                                      uint64_t count, const octavo_collective *c, void *send,
                                      void *recv, void *state, void *stream) {
  if (r == nullptr || c == nullptr || c->run == nullptr || (items == nullptr && count != 0))
    return OCTAVO_INVALID;
  return octavo::guarded(r->host(), [&]() -> octavo_status {
    // Kept between calls, so that a step allocates nothing once the largest bucket was seen.
    thread_local std::vector<uint32_t> parameters;
    thread_local Plan plan;
    parameters.clear();
    for (uint64_t i = 0; i < count; ++i) parameters.push_back(items[i].parameter);
    octavo_status status = make_plan(r, parameters.data(), count, c->world, &plan);
    octavo_gradient_call call{};
    call.size = sizeof(call);
    call.kind = OCTAVO_KIND_GRADIENT_CALL;
    call.world = c->world;
    call.stream = stream;
    call.items = items;
    call.count = count;
    call.recv = recv;
    call.send = send;
    call.state = state;
    for (size_t i = 0; status == OCTAVO_OK && i < plan.stages.size(); ++i) {
      const octavo_gradient_stage &s = plan.stages[i];
      call.stage = static_cast<uint32_t>(i);
      status = gradients_of(r).run_stage(r->session(), &call);
      if (status == OCTAVO_OK && s.collective != OCTAVO_COLLECTIVE_NONE)
        status =
            c->run(c->ctx, s.collective, s.dtype, send, s.send_count, recv, s.recv_count, stream);
    }
    return status;
  });
}
