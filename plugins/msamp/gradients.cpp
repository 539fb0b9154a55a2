// octavo.gradients/1: one bucket of weight gradients over W ranks, in FP8 on stock collectives.
//
// Two-shot: amax -> [max over ranks] -> cast with the common scale -> [all-to-all of codes] -> sum
// of W shards in rank order, in fp32, with one cast back -> [all-gather] -> the gradient slots. So
// an element is rounded twice for any W, where a ring rounds it at every hop. One-shot, for small
// buckets: all codes to everybody, who adds all of them: one exchange less and the same bits.
#include "reduction.h"

namespace octavo::msamp {
namespace {

octavo_status check_parameter(const octavo_session &s, const char *verb, uint32_t id) {
  if (id >= s.sealed_parameters) return refuse_id(s, verb, id);
  const Parameter &p = s.parameters[id];
  if (!p.is_owned || p.is_frozen())
    return refuse(
        s, OCTAVO_INVALID,
        std::string(verb) + " \"" + p.name +
            "\": expected a parameter with a gradient slot, found " +
            (p.is_frozen() ? "a frozen one" : "one whose gradient is the host's: reduce it there"));
  return OCTAVO_OK;
}

octavo_status check_world(const octavo_session &s, const char *verb, uint32_t world) {
  if (world >= 1 && world <= 65536) return OCTAVO_OK;
  return refuse(s, OCTAVO_INVALID,
                std::string(verb) + ": expected 1 to 65536 ranks, found " + std::to_string(world));
}

}  // namespace

octavo_status plan_reduction(const octavo_session *s, octavo_gradient_plan *plan) {
  octavo_status status = check_world(*s, "plan_reduction", plan->world);
  for (uint64_t i = 0; i < plan->count && status == OCTAVO_OK; ++i)
    status = check_parameter(*s, "plan_reduction", plan->parameters[i]);
  if (status != OCTAVO_OK) return status;
  plan->state_bytes = 0;
  const Bucket b =
      bucket_of(*s, plan->count, plan->world, [&](uint64_t i) { return plan->parameters[i]; });
  const uint32_t stages = stage_count(b, plan->world);
  if (stages == 0) return OCTAVO_OK;
  plan->state_bytes = state_of(b, nullptr).bytes;
  const uint64_t all = b.shard * plan->world;
  struct Exchange {
    uint32_t collective, dtype;
    uint64_t send, recv;
  };
  const Exchange two_shot[] = {{OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_F32, b.count, b.count},
                               {OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, all, all},
                               {OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, b.shard, all},
                               {OCTAVO_COLLECTIVE_NONE, OCTAVO_U8, 0, 0}};
  const Exchange one_shot[] = {
      {OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_F32, b.count, b.count},
      {OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, b.elements, b.elements * plan->world},
      {OCTAVO_COLLECTIVE_NONE, OCTAVO_U8, 0, 0}};
  const Exchange *exchanges = b.one_shot ? one_shot : two_shot;
  for (uint32_t i = 0; i < stages && status == OCTAVO_OK; ++i) {
    const Exchange &e = exchanges[i];
    const octavo_gradient_stage stage = {sizeof(octavo_gradient_stage),
                                         OCTAVO_KIND_GRADIENT_STAGE,
                                         e.collective,
                                         e.dtype,
                                         e.send,
                                         e.recv};
    status = plan->stage(plan->ctx, &stage);
  }
  return status;
}

octavo_status run_stage(const octavo_session *s, const octavo_gradient_call *c) {
  octavo_status status = check_world(*s, "run_stage", c->world);
  for (uint64_t i = 0; i < c->count && status == OCTAVO_OK; ++i) {
    status = check_parameter(*s, "run_stage", c->items[i].parameter);
    if (status != OCTAVO_OK) break;
    const Parameter &p = s->parameters[c->items[i].parameter];
    if (c->items[i].slots == nullptr || at(c->items[i].slots, p.gradient.data) == nullptr)
      status = refuse(*s, OCTAVO_INVALID,
                      "run_stage \"" + p.name + "\": expected its gradient slot, found null");
  }
  if (status != OCTAVO_OK) return status;
  const Bucket b =
      bucket_of(*s, c->count, c->world, [&](uint64_t i) { return c->items[i].parameter; });
  const uint32_t stages = stage_count(b, c->world);
  if (c->stage >= stages)
    return refuse(*s, OCTAVO_INVALID,
                  "run_stage: expected a stage below " + std::to_string(stages) +
                      ", which plan_reduction stated for this bucket, found " +
                      std::to_string(c->stage));
  return run_bucket_stage(*s, *c, b);
}

}  // namespace octavo::msamp
