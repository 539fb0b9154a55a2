// octavo_reduce_gradients: drives the stages of one bucket for a host with blocking collectives.
#include <vector>

#include "run.h"
#include "wall.h"

namespace {

octavo_status collect_stage(void *ctx, const octavo_gradient_stage *s) {
  static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(*s);
  return OCTAVO_OK;
}

}  // namespace

octavo_status octavo_reduce_gradients(octavo_run *r, const octavo_parameter_item *items,
                                      uint64_t count, const octavo_collective *c, void *send,
                                      void *recv, void *state, void *stream) {
  if (r == nullptr || c == nullptr || c->run == nullptr || (items == nullptr && count != 0))
    return OCTAVO_INVALID;
  return octavo::guarded(r->host(), [&]() -> octavo_status {
    const octavo_gradients *gradients = octavo_gradients_of(r);
    if (gradients == nullptr)
      throw octavo::Failure(OCTAVO_UNSUPPORTED, "octavo.reduce",
                            "the chosen backend has no " OCTAVO_GRADIENTS_ID
                            ": its gradients are the host's own, reduce them there");
    std::vector<uint32_t> parameters;
    for (uint64_t i = 0; i < count; ++i) parameters.push_back(items[i].parameter);
    std::vector<octavo_gradient_stage> stages;
    octavo_gradient_plan plan{};
    plan.size = sizeof(plan);
    plan.kind = OCTAVO_KIND_GRADIENT_PLAN;
    plan.world = c->world;
    plan.parameters = parameters.data();
    plan.count = count;
    plan.ctx = &stages;
    plan.stage = collect_stage;
    octavo_status status = gradients->plan_reduction(r->session(), &plan);
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
    for (size_t i = 0; status == OCTAVO_OK && i < stages.size(); ++i) {
      const octavo_gradient_stage &s = stages[i];
      if (s.collective > OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM)
        throw octavo::Failure(OCTAVO_UNSUPPORTED, "octavo.reduce",
                              "stage " + std::to_string(i) + " asks for collective " +
                                  std::to_string(s.collective) + ", unknown to this host");
      call.stage = static_cast<uint32_t>(i);
      status = gradients->run_stage(r->session(), &call);
      if (status == OCTAVO_OK && s.collective != OCTAVO_COLLECTIVE_NONE)
        status =
            c->run(c->ctx, s.collective, s.dtype, send, s.send_count, recv, s.recv_count, stream);
    }
    return status;
  });
}
