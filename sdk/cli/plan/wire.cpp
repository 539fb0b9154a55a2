// Gradients, weights and maxima, as the hosts of this tree exchange them. Losses, norms and flags,
// a few numbers a step, are the host's own and left out.
#include "sdk/cli/plan/wire.h"

#include <algorithm>
#include <set>

#include "sdk/cli/plan/ranks.h"
#include "sdk/src/store/shared_out.h"

namespace octavo::cli::plan {
namespace {

using estimate::kF32;
using estimate::Placed;

// Elements of gradients in slots that are reduced together, as train_gpt cuts them.
constexpr uint64_t kBucketElements = uint64_t{1} << 20;

// The same in Python: 25 MiB in fp32, shared out among the buckets of all owners.
constexpr uint64_t kPythonElements = (uint64_t{25} << 20) / kF32;
// What a gather to one rank is in these tables, which octavo/draft/gradients.h has not.
constexpr uint32_t kGather = 1000;

const char *name_of(uint32_t collective) {
  switch (collective) {
    case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX: return "all_reduce_max";
    case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM: return "all_reduce_sum";
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: return "all_to_all";
    case OCTAVO_COLLECTIVE_ALL_GATHER: return "all_gather";
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return "reduce_scatter_sum";
    case kGather: return "gather";
    default: return "broadcast";
  }
}

// Bytes that leave a rank of `ranks` when each gives `given` bytes; on average, rounded up.
uint64_t sent_of(uint32_t collective, uint64_t given, uint64_t ranks) {
  if (collective == OCTAVO_COLLECTIVE_ALL_GATHER) return (ranks - 1) * given;
  const bool there_and_back = collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ||
                              collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
  const uint64_t whole = (there_and_back ? 2 : 1) * (ranks - 1);
  return given / ranks * whole + (given % ranks * whole + ranks - 1) / ranks;
}

class Sum {
 public:
  void add(const char *what, uint32_t collective, uint32_t ranks, uint64_t given) {
    if (ranks < 2) return;
    const std::string name = name_of(collective);
    auto found = std::find_if(wire.operations.begin(), wire.operations.end(), [&](auto &o) {
      return o.what == what && o.collective == name && o.ranks == ranks;
    });
    if (found == wire.operations.end())
      found = wire.operations.insert(found, {what, name, ranks, 0, 0, 0});
    ++found->calls;
    found->given += given;
    found->sent += sent_of(collective, given, ranks);
  }

  Wire wire;
};

octavo_status add_stage(void *ctx, const octavo_gradient_stage *s) {
  static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(*s);
  return OCTAVO_OK;
}

// is_owned: one rank alone needs the means, so the last exchange goes to it.
void add_bucket(const octavo::Run &run, const std::vector<uint32_t> &bucket, uint32_t world,
                bool is_owned, Sum &sum) {
  std::vector<octavo_gradient_stage> stages;
  auto asked = octavo::make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
  asked.world = world;
  asked.parameters = bucket.data();
  asked.count = bucket.size();
  asked.ctx = &stages;
  asked.stage = add_stage;
  run.host().require(run.gradients()->plan_reduction(run.session(), &asked), "plan_reduction");
  const size_t n = stages.size();
  if (is_owned && n > 1 && stages[n - 1].collective == OCTAVO_COLLECTIVE_NONE &&
      stages[n - 2].collective == OCTAVO_COLLECTIVE_ALL_GATHER)
    stages[n - 2].collective = kGather;
  for (const octavo_gradient_stage &s : stages)
    if (s.collective != OCTAVO_COLLECTIVE_NONE)
      sum.add("gradients", s.collective, world, s.send_count * OCTAVO_DTYPE_BITS(s.dtype) / 8);
}

// The ranks that step parameters, by parameter: where one has more slots than its gradient that a
// reduction writes, every rank needs what it writes, and the parameter is left out.
std::map<uint32_t, uint32_t> roots_of(const octavo::Run &run, uint32_t world) {
  std::map<uint32_t, uint32_t> roots = owners_of(run, world);
  std::set<uint32_t> kept;
  for (const octavo_slot &s : run.slots())
    if (s.role == OCTAVO_ROLE_GRADIENT) kept.insert({s.id, s.scale_slot});
  for (const octavo_slot &s : run.slots()) {
    const uint8_t access = s.access[OCTAVO_VERB_REDUCE];
    if (s.owner_kind == OCTAVO_OWNER_PARAMETER && kept.count(s.id) == 0 &&
        (access == OCTAVO_ACCESS_WRITE || access == OCTAVO_ACCESS_UPDATE))
      roots.erase(s.owner);
  }
  return roots;
}

// The last of the model first: in this order backward finishes them.
void add_data_parallel(const estimate::Model &model, uint32_t world, GradientPlacement means,
                       Sum &sum) {
  const octavo::Run &run = *model.run;
  const bool to_owners =
      means == GradientPlacement::kOwner && run.optimizer() != nullptr && world > 1;
  const auto roots = to_owners ? roots_of(run, world) : std::map<uint32_t, uint32_t>();
  const uint64_t limit = to_owners ? kPythonElements / world : kBucketElements;
  struct Bucket {
    std::vector<uint32_t> parameters;
    uint64_t elements = 0;
  };
  std::map<uint32_t, Bucket> open;  // by the rank that gets the means; OCTAVO_NONE: all
  const auto end_bucket = [&](uint32_t root) {
    Bucket &b = open[root];
    if (!b.parameters.empty()) add_bucket(run, b.parameters, world, root != OCTAVO_NONE, sum);
    b = {};
  };
  for (auto p = model.placed.rbegin(); p != model.placed.rend(); ++p) {
    const uint64_t count = p->tensor->count();
    if (estimate::host_tensors(run, *p).gradient) {
      sum.add("gradients", OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, world, count * kF32);
      continue;
    }
    const auto found = roots.find(p->parameter);
    const uint32_t root = found == roots.end() ? OCTAVO_NONE : found->second;
    if (open[root].elements + count > limit) end_bucket(root);
    open[root].parameters.push_back(p->parameter);
    open[root].elements += count;
  }
  for (const auto &[root, bucket] : std::map<uint32_t, Bucket>(open)) end_bucket(root);
  const bool is_shared_out = run.optimizer() != nullptr &&
                             std::any_of(run.slots().begin(), run.slots().end(),
                                         [](auto &s) { return s.shard == OCTAVO_SHARD_WHOLE; });
  std::map<uint32_t, bool> has_owner;
  for (const octavo_slot &s : run.slots())
    if (s.shard == OCTAVO_SHARD_WHOLE) has_owner[s.owner] = true;
  for (const octavo_slot &s : run.slots())
    if (is_shared_out && s.owner_kind == OCTAVO_OWNER_PARAMETER && has_owner.count(s.owner) != 0 &&
        is_published(s))
      sum.add("weights", OCTAVO_COLLECTIVE_NONE, world, estimate::bytes_of(s));
}

// Each weight is gathered for forward and for backward.
void add_fully_sharded(const estimate::Model &model, const Mesh &mesh, const Gather &gather,
                       Sum &sum) {
  const octavo::Run &run = *model.run;
  for (const Placed &p : model.placed) {
    const uint64_t elements = shard_elements(*p.tensor, mesh.shards);
    uint64_t packet = elements * gather.value_bytes;
    const auto rows = static_cast<uint64_t>(p.tensor->rows);
    if (gather.codes && p.linear != OCTAVO_NONE && rows % mesh.shards == 0) {
      auto plan = octavo::make<octavo_shard_plan>(OCTAVO_KIND_SHARD_PLAN);
      plan.parameter = p.parameter;
      plan.rows = static_cast<int64_t>(rows / mesh.shards);
      if (run.shard()->plan(run.session(), &plan) == OCTAVO_OK) {
        packet = plan.packet_bytes;
        ++sum.wire.gathered_codes;
      }
    }
    for (int pass = 0; pass < 2; ++pass)
      sum.add("weights", OCTAVO_COLLECTIVE_ALL_GATHER, mesh.shards, packet);
    sum.add("gradients", OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM, mesh.shards,
            elements * mesh.shards * kF32);
    sum.add("gradients", OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, mesh.replicas, elements * kF32);
  }
  if (sum.wire.gathered_codes > 0)  // of all weights together, for the scales of their codes
    sum.add("maxima of weights", OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, mesh.shards,
            sum.wire.gathered_codes * kF32);
}

}  // namespace

uint64_t Wire::sent() const {
  uint64_t all = 0;
  for (const Operation &o : operations) all += o.sent;
  return all;
}

Wire wire_of(const estimate::Model &model, const Mesh &mesh, const Gather &gather,
             GradientPlacement means) {
  const octavo::Run &run = *model.run;
  Sum sum;
  if (mesh.is_sharded())
    add_fully_sharded(model, mesh, gather, sum);
  else
    add_data_parallel(model, mesh.world(), means, sum);
  for (const octavo_slot &s : run.slots())
    if ((s.flags & OCTAVO_SLOT_REDUCE) != 0)
      sum.add("maxima and counts",
              s.combine == OCTAVO_COMBINE_MAX ? OCTAVO_COLLECTIVE_ALL_REDUCE_MAX
                                              : OCTAVO_COLLECTIVE_ALL_REDUCE_SUM,
              mesh.world(), estimate::bytes_of(s));
  return sum.wire;
}

}  // namespace octavo::cli::plan
