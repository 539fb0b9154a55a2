// The plan of a gradient reduction and its collectives, in plain code.
//
// A stage whose counts do not fit its collective is a failure here, before anything is sent.
#include <algorithm>
#include <cstring>

#include "reduction.h"
#include "report.h"

namespace octavo::conformance {
namespace {

float combined(const std::vector<Rank> &ranks, uint64_t i, bool sum) {
  float all = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    float one = 0;
    std::memcpy(&one, ranks[r].send + i * sizeof one, sizeof one);
    all = r == 0 ? one : sum ? all + one : std::max(all, one);
  }
  return all;
}

}  // namespace

std::vector<uint32_t> reducible(const Session &s) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < s.parameters().size(); ++id) {
    const auto &uses = s.uses(OCTAVO_OWNER_PARAMETER, id);
    const bool used = !s.parameters()[id].linears.empty();
    const bool written = std::any_of(uses.begin(), uses.end(), [&](const octavo_slot_use &use) {
      const octavo_slot &d = s.slots()[use.slot].desc;
      return d.role == OCTAVO_ROLE_GRADIENT && writes(d.access[OCTAVO_VERB_REDUCE]) &&
             (used || (d.flags & OCTAVO_SLOT_NATIVE) != 0);
    });
    if (written) ids.push_back(id);
  }
  return ids;
}

ReductionPlan plan_of(const Session &s, const std::vector<uint32_t> &parameters, uint32_t world) {
  ReductionPlan plan;
  auto p = octavo::make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
  p.world = world;
  p.parameters = parameters.data();
  p.count = parameters.size();
  p.ctx = &plan.stages;
  p.stage = [](void *ctx, const octavo_gradient_stage *stage) -> octavo_status {
    static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(*stage);
    return OCTAVO_OK;
  };
  const octavo_status status = s.context().target.gradients->plan_reduction(s.handle(), &p);
  expect(status == OCTAVO_OK, "plan_reduction of ", parameters.size(), " parameters over ", world,
         " ranks answered ", status_name(status), "; expected OCTAVO_OK");
  plan.state_bytes = p.state_bytes;
  return plan;
}

void expect_same_plan(const ReductionPlan &a, const ReductionPlan &b, uint32_t world) {
  bool same = a.state_bytes == b.state_bytes && a.stages.size() == b.stages.size();
  for (size_t i = 0; same && i < a.stages.size(); ++i) {
    const octavo_gradient_stage &x = a.stages[i], &y = b.stages[i];
    same = x.collective == y.collective && x.dtype == y.dtype && x.send_count == y.send_count &&
           x.recv_count == y.recv_count;
  }
  expect(same, "plan_reduction over ", world, " ranks gave two answers to one question (",
         a.stages.size(), " and ", b.stages.size(), " stages); ranks must agree on the stages");
}

void check_stage(const octavo_gradient_stage &s, const std::string &what, uint64_t world) {
  expect(s.kind == OCTAVO_KIND_GRADIENT_STAGE, what, " has kind ", s.kind, "; expected ",
         OCTAVO_KIND_GRADIENT_STAGE + 0);
  expect(element_bytes(s.dtype) > 0, what, " has unknown dtype ", s.dtype);
  bool fits = false;
  switch (s.collective) {
    case OCTAVO_COLLECTIVE_NONE: fits = true; break;
    case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX:
    case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM:
      fits = s.dtype == OCTAVO_F32 && s.send_count == s.recv_count;
      break;
    case OCTAVO_COLLECTIVE_ALL_TO_ALL:
      fits = s.send_count == s.recv_count && s.send_count % world == 0;
      break;
    case OCTAVO_COLLECTIVE_ALL_GATHER: fits = s.recv_count == world * s.send_count; break;
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM:
      fits = s.dtype == OCTAVO_F32 && s.send_count == world * s.recv_count;
      break;
    default: expect(false, what, " asks for the unknown collective ", s.collective);
  }
  expect(fits, what, " states send_count ", s.send_count, ", recv_count ", s.recv_count, " and ",
         dtype_name(s.dtype), ", which collective ", s.collective, " over ", world,
         " ranks cannot have");
}

void communicate(const octavo_gradient_stage &s, std::vector<Rank> &ranks) {
  const uint64_t send = s.send_count * element_bytes(s.dtype);
  const uint64_t part = send / ranks.size();
  for (size_t to = 0; to < ranks.size(); ++to) {
    uint8_t *recv = ranks[to].recv;
    if (s.collective == OCTAVO_COLLECTIVE_ALL_GATHER) {
      for (size_t r = 0; r < ranks.size(); ++r) std::memcpy(recv + r * send, ranks[r].send, send);
    } else if (s.collective == OCTAVO_COLLECTIVE_ALL_TO_ALL) {
      for (size_t r = 0; r < ranks.size(); ++r) {
        std::memcpy(recv + r * part, ranks[r].send + to * part, part);
      }
    } else if (s.collective != OCTAVO_COLLECTIVE_NONE) {
      const bool scatter = s.collective == OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM;
      for (uint64_t i = 0; i < s.recv_count; ++i) {
        const float value = combined(ranks, i + (scatter ? to * s.recv_count : 0),
                                     s.collective != OCTAVO_COLLECTIVE_ALL_REDUCE_MAX);
        std::memcpy(recv + i * sizeof value, &value, sizeof value);
      }
    }
  }
}

}  // namespace octavo::conformance
