// reduction: ranks that reduce through octavo.gradients/1 all end with the mean of their gradients.
//
// One rank, two and three: each a host with a session of its own, the same model, other data.
// Stages run rank after rank and the collectives are plain code, so neither threads nor a
// communication library can hide what a stage does. Each stage runs twice from equal memory, once
// behind the fence, with rubbish wherever it may not look; one whose counts do not fit its
// collective is a failure before anything is sent.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "all_checks.h"
#include "fenced_call.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

struct Rank {
  std::unique_ptr<Session> session;
  std::unique_ptr<Host> host;
  uint8_t *send = nullptr;
  uint8_t *recv = nullptr;
  uint8_t *state = nullptr;
  std::vector<std::vector<void *>> lists;
  std::vector<octavo_parameter_item> items;
};

// What plan_reduction answers.
struct ReductionPlan {
  std::vector<octavo_gradient_stage> stages;
  uint64_t state_bytes = 0;
};

// Whether a verb changes a slot with this access.
inline bool writes(uint8_t access) {
  return access == OCTAVO_ACCESS_WRITE || access == OCTAVO_ACCESS_UPDATE;
}

float combined(const std::vector<Rank> &ranks, uint64_t i, bool sum) {
  float all = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    float one = 0;
    std::memcpy(&one, ranks[r].send + i * sizeof one, sizeof one);
    all = r == 0 ? one : sum ? all + one : std::max(all, one);
  }
  return all;
}

// Those whose gradient slot a reduction writes, and of which this suite has a gradient.
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

// Fails when the counts do not fit the collective.
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

// The collective behind a stage, from every send to every recv.
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

// One bucket of every gradient.
class Reduction {
 public:
  // Throws Skip when there is nothing to reduce.
  Reduction(const Context &context, uint32_t world);

  void compute_gradients();
  // Asks every rank for its stages, twice, and allocates what they state.
  void plan();
  // Runs all stages and collectives.
  void run();
  void check_ranks_agree() const;
  // As values, by rank and parameter of the bucket.
  std::vector<std::vector<std::vector<double>>> gradients();
  // Of a parameter of the bucket.
  const std::string &name(size_t i) const;

 private:
  std::vector<Entry> written(uint32_t rank, uint32_t parameter) const;
  octavo_status call(const Rank &rank, uint32_t stage) const;
  void run_stage(uint32_t r, uint32_t stage);
  void expect_stated_changes(uint32_t r, const Snapshot &before, const std::string &what) const;

  const Context &context_;
  uint32_t world_;
  std::vector<Rank> ranks_;
  std::vector<uint32_t> parameters_;
  ReductionPlan plan_;
  uint64_t longest_ = 0;  // bytes of send and recv
};

constexpr double kGradientBound = 0.25;
const char *const kSendName = "send of the reduction";

Reduction::Reduction(const Context &context, uint32_t world) : context_(context), world_(world) {
  for (uint32_t r = 0; r < world; ++r) {
    Rank rank;
    rank.session = std::make_unique<Session>(context);
    Session &s = *rank.session;
    s.add(standard_model());
    s.seal();
    rank.host = std::make_unique<Host>(s, context.seed);  // equal weights
    for (uint32_t id = 0; id < s.linears().size(); ++id) {
      rank.host->add_batch({id, 5 + id, mix(context.seed, 1000 * (r + 1) + id)});
    }
    parameters_ = reducible(s);
    if (parameters_.empty()) throw Skip("no parameter has a gradient that a reduction writes");
    ranks_.push_back(std::move(rank));
  }
}

void Reduction::compute_gradients() {
  for (Rank &rank : ranks_) {
    Host &host = *rank.host;
    host.quantize_weights();
    for (Batch &batch : host.batches()) host.forward(batch);
    for (Batch &batch : host.batches()) host.backward(batch);
    for (const uint32_t id : parameters_) {  // the host's own part of the model
      if (!rank.session->parameters()[id].linears.empty()) continue;
      const auto r = static_cast<uint64_t>(&rank - ranks_.data());
      fill(host.dw(id), mix(context_.seed, 1000 * (r + 1) + 500 + id), kGradientBound);
    }
  }
}

void Reduction::plan() {
  for (Rank &rank : ranks_) {
    const ReductionPlan plan = plan_of(*rank.session, parameters_, world_);
    expect_same_plan(plan, plan_of(*rank.session, parameters_, world_), world_);
    if (&rank == &ranks_[0]) plan_ = plan;
    expect_same_plan(plan_, plan, world_);
  }
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    const octavo_gradient_stage &s = plan_.stages[i];
    check_stage(s, text("stage ", i, " of ", plan_.stages.size()), world_);
    longest_ = std::max(longest_, std::max(s.send_count, s.recv_count) * element_bytes(s.dtype));
  }
  for (Rank &rank : ranks_) {
    Arena &arena = rank.host->arena();
    rank.send = arena.allocate(longest_, Use::kTensor, kSendName);
    rank.recv = arena.allocate(longest_, Use::kTensor, "recv of the reduction");
    rank.state = arena.allocate(plan_.state_bytes, Use::kWorkspace, "state of the reduction");
    for (const uint32_t id : parameters_) {
      std::vector<void *> list;
      for (const Entry &e : rank.host->entries(OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, id)) {
        list.push_back(e.access == OCTAVO_ACCESS_NONE ? nullptr : e.address);
      }
      rank.lists.push_back(std::move(list));
      rank.items.push_back({id, 0, rank.lists.back().data(), nullptr});
    }
  }
}

// All stages. What lies behind the stated counts, and in send before a stage, is rubbish.
void Reduction::run() {
  uint64_t received = 0;
  for (uint32_t i = 0; i < plan_.stages.size(); ++i) {
    for (uint32_t r = 0; r < world_; ++r) {
      std::memset(ranks_[r].recv + received, 0xA5, longest_ - received);
      run_stage(r, i);
    }
    const octavo_gradient_stage &s = plan_.stages[i];
    communicate(s, ranks_);
    received = s.collective == OCTAVO_COLLECTIVE_NONE ? 0 : s.recv_count * element_bytes(s.dtype);
  }
}

void Reduction::check_ranks_agree() const {
  for (uint32_t r = 1; r < world_; ++r) {
    for (const uint32_t id : parameters_) {
      const auto a = written(0, id), b = written(r, id);
      for (size_t i = 0; i < a.size(); ++i) {
        expect(std::memcmp(a[i].address, b[i].address, a[i].bytes) == 0, "ranks 0 and ", r, " of ",
               world_, " end with different bytes in ", ranks_[r].host->slot_name(a[i].slot));
      }
    }
  }
}

std::vector<std::vector<std::vector<double>>> Reduction::gradients() {
  std::vector<std::vector<std::vector<double>>> all;
  for (Rank &rank : ranks_) {
    auto &own = all.emplace_back();
    for (const uint32_t id : parameters_) own.push_back(rank.host->gradient(id));
  }
  return all;
}

const std::string &Reduction::name(size_t i) const {
  return ranks_[0].session->parameters()[parameters_[i]].spec.name;
}

std::vector<Entry> Reduction::written(uint32_t rank, uint32_t parameter) const {
  auto all = ranks_[rank].host->entries(OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, parameter);
  std::erase_if(all, [](const Entry &e) { return !writes(e.access); });
  return all;
}

octavo_status Reduction::call(const Rank &rank, uint32_t stage) const {
  auto c = octavo::make<octavo_gradient_call>(OCTAVO_KIND_GRADIENT_CALL);
  c.stage = stage;
  c.world = world_;
  c.items = rank.items.data();
  c.count = rank.items.size();
  c.recv = rank.recv;
  c.send = rank.send;
  c.state = rank.state;
  return context_.target.gradients->run_stage(rank.session->handle(), &c);
}

// Twice from equal memory, apart from rubbish in send: once behind the fence.
void Reduction::run_stage(uint32_t r, uint32_t stage) {
  Rank &rank = ranks_[r];
  Host &host = *rank.host;
  const std::string what = text("run_stage ", stage, " on rank ", r, " of ", world_);
  const auto run = [&](bool is_fenced) {
    run_fenced(host, OCTAVO_VERB_REDUCE, what, is_fenced, [&] { return call(rank, stage); });
  };
  std::memset(rank.send, 0x5A, longest_);
  const Snapshot before = host.arena().snapshot();
  run(true);
  expect_stated_changes(r, before, what);
  const Snapshot after = host.arena().snapshot();
  const uint64_t send = plan_.stages[stage].send_count * element_bytes(plan_.stages[stage].dtype);
  const std::vector<uint8_t> sent(rank.send, rank.send + send);
  host.arena().restore(before);
  std::memset(rank.send, 0xC3, longest_);
  run(false);
  expect_equal(host.arena(), after, host.arena().snapshot(), what + ", repeated",
               [](const Region &region) { return region.name == kSendName; });
  expect(std::equal(sent.begin(), sent.end(), rank.send), what,
         " sends other bytes when repeated: it must write all ", send,
         " bytes of send that it states, from nothing but its arguments");
}

// Only send, state and slots that reduce may write have changed.
void Reduction::expect_stated_changes(uint32_t r, const Snapshot &before,
                                      const std::string &what) const {
  const Rank &rank = ranks_[r];
  const Arena &arena = rank.host->arena();
  std::vector<const uint8_t *> allowed = {rank.send, rank.state};
  for (const uint32_t id : parameters_) {
    for (const Entry &e : rank.host->entries(OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, id)) {
      if (writes(e.access) || e.access == OCTAVO_ACCESS_ACCUMULATE) {
        allowed.push_back(rank.host->address(e.slot));
      }
    }
  }
  for (const Region &region : arena.regions()) {
    const uint8_t *begin = arena.base() + region.begin;
    if (std::find(allowed.begin(), allowed.end(), begin) != allowed.end()) continue;
    const auto *old = before.data() + region.begin;
    const auto change = std::mismatch(begin, begin + region.bytes, old).first;
    expect(change == begin + region.bytes, what, " changed ", arena.describe(arena.offset(change)),
           ", which it does not state");
  }
}

// A cast to the coarsest FP8 format, E5M2, is off by at most 2^-3 of a value. So is the mean of the
// ranks' casts; then the sum, up to 1 + 2^-3 of the largest, is cast once more.
constexpr double kRoundings = 0x1p-3 + 0x1p-3 * (1 + 0x1p-3);
// Values that the format rounds to a fixed step or to 0 are off by half of the least step, twice.
// In E4M3 that is 2 * 2^-10 in codes, where a pre-scaled amax stands at 1/2 or above.
constexpr double kLeastStep = 0x1p-8;

}  // namespace

void need_gradients(const Context &context) {
  if (context.target.gradients == nullptr) {
    throw Skip(text("the backend has no ", OCTAVO_GRADIENTS_ID));
  }
}

void check_reduction(const Context &context) {
  need_gradients(context);
  for (const uint32_t world : {1U, 2U, 3U}) {
    Reduction reduction(context, world);
    reduction.plan();
    reduction.compute_gradients();
    const auto before = reduction.gradients();
    reduction.run();
    reduction.check_ranks_agree();
    const auto after = reduction.gradients();
    for (size_t p = 0; p < after[0].size(); ++p) {
      double amax = 0;
      for (const auto &rank : before) {
        for (const double v : rank[p]) amax = std::max(amax, std::fabs(v));
      }
      expect(amax > 0, "the gradient of '", reduction.name(p), "' is 0 on every rank");
      for (size_t i = 0; i < after[0][p].size(); ++i) {
        double mean = 0, largest = 0;
        for (const auto &rank : before) {
          mean += rank[p][i] / world;
          largest = std::max(largest, std::fabs(rank[p][i]));
        }
        const double bound = world == 1 ? 0 : kRoundings * largest + kLeastStep * amax;
        if (std::fabs(after[0][p][i] - mean) <= bound) continue;
        expect(false, "element ", i, " of the gradient of '", reduction.name(p), "' is ",
               after[0][p][i], " after the reduction over ", world, " ranks; their mean is ", mean,
               " and the bound is ", bound);
      }
    }
  }
}

}  // namespace octavo::conformance
