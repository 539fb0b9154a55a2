// The stages of a gradient reduction on every rank.
//
// Each runs twice from equal memory, once behind the fence, with rubbish wherever it may not look.
#include "reduction.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "fenced_call.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr double kGradientBound = 0.25;
const char *const kSendName = "send of the reduction";

}  // namespace

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

}  // namespace octavo::conformance
