// Data parallel ranks keep everything but WHOLE slots, which are the owner's of their parameter; a
// rank of fully_shard keeps its shard of the host's tensors, and codes of weights only while they
// are gathered.
#include "sdk/cli/plan/ranks.h"

#include <algorithm>

#include "sdk/src/base/text.h"
#include "sdk/src/store/shared_out.h"

namespace octavo::cli::plan {
namespace {

using estimate::Column;
using estimate::Placed;

bool is_kept_by_one(const estimate::Model &model, const octavo_slot &s, const Mesh &mesh) {
  return s.shard == OCTAVO_SHARD_WHOLE && model.run->optimizer() != nullptr && mesh.world() > 1;
}

// Codes of a weight and their scales, which quantize_weight makes again.
bool is_made_again(const octavo_slot &s) {
  return s.owner_kind == OCTAVO_OWNER_PARAMETER &&
         s.access[OCTAVO_VERB_QUANTIZE_WEIGHT] == OCTAVO_ACCESS_WRITE &&
         (s.flags & OCTAVO_SLOT_CHECKPOINT) == 0;
}

void add(Column &to, const Column &from) {
  for (size_t part = 0; part < estimate::kParts; ++part) to.bytes[part] += from.bytes[part];
}

}  // namespace

uint64_t shard_elements(const estimate::Tensor &t, uint32_t shards) {
  const auto rows = static_cast<uint64_t>(t.rows), cols = static_cast<uint64_t>(t.cols);
  const auto part = [&](uint64_t n) { return (n + shards - 1) / shards; };
  return rows == 1 ? part(cols) : part(rows) * cols;
}

std::map<uint32_t, uint32_t> owners_of(const octavo::Run &run, uint32_t world) {
  WholeElements whole;
  for (const octavo_slot &s : run.slots()) add_whole(whole, s);
  std::vector<uint64_t> loads(world);
  std::map<uint32_t, uint32_t> owners;
  share_out(whole, loads, [&](uint32_t parameter, uint32_t rank) { owners[parameter] = rank; });
  return owners;
}

std::string refusal_of(const estimate::Model &model, const Mesh &mesh, bool codes) {
  const octavo::Run &run = *model.run;
  bool keeps_gradients = false, keeps_weights = run.optimizer() != nullptr;
  for (const Placed &p : model.placed) {
    const estimate::HostTensors host = estimate::host_tensors(run, p);
    keeps_gradients = keeps_gradients || !host.gradient;
    keeps_weights = keeps_weights || !host.weight;
  }
  if (mesh.is_sharded() && keeps_weights)
    return concat("fully_shard needs weights in tensors of the host, ", run.backend_id(),
                  " keeps them in slots; choose the backend te, or --parallel ddp");
  if (codes && run.shard() == nullptr)
    return concat("FP8 gather needs a backend with ", OCTAVO_SHARD_ID, ", ", run.backend_id(),
                  " has none; choose the backend te, or --gather values");
  if (mesh.world() > 1 && keeps_gradients && run.gradients() == nullptr)
    return concat(run.backend_id(),
                  " keeps gradients in slots and has no octavo.gradients/1; plan one rank");
  return {};
}

Ranks ranks_of(const estimate::Model &model, const Mesh &mesh, uint64_t rows) {
  const octavo::Run &run = *model.run;
  Column common;
  estimate::add_linears(model, rows, common);
  for (const Placed &p : model.placed)
    estimate::add_host_tensors(
        estimate::host_tensors(run, p),
        mesh.is_sharded() ? shard_elements(*p.tensor, mesh.shards) : p.tensor->count(), common);
  const auto owners = owners_of(run, mesh.world());
  std::vector<Column> own(mesh.world());
  for (const octavo_slot &s : run.slots()) {
    if ((s.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
    if (mesh.is_sharded() && is_made_again(s)) continue;
    Column &to = is_kept_by_one(model, s, mesh) ? own[owners.at(s.owner)] : common;
    to.bytes[estimate::part_of(s)] += estimate::bytes_of(s);
  }
  const auto by_total = [](const Column &a, const Column &b) { return a.total() < b.total(); };
  const auto fullest = std::max_element(own.begin(), own.end(), by_total);
  const auto least = std::min_element(own.begin(), own.end(), by_total);
  Ranks ranks;
  ranks.fullest = static_cast<uint32_t>(fullest - own.begin());
  ranks.least = static_cast<uint32_t>(least - own.begin());
  ranks.of_fullest = ranks.of_least = common;
  add(ranks.of_fullest, *fullest);
  add(ranks.of_least, *least);
  for (const Column &one : own) {
    add(ranks.of_all, one);
    add(ranks.of_all, common);
  }
  return ranks;
}

}  // namespace octavo::cli::plan
