// Memory and calls of a weight whose rows are on several ranks.
#include "shards.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "fenced_call.h"
#include "report.h"

namespace octavo::conformance {

std::optional<octavo_shard_plan> shard_plan(Session &s, uint32_t parameter, int64_t rows) {
  const std::string name =
      text("octavo.shard/1 plan of '", s.parameters()[parameter].spec.name, "' by ", rows, " rows");
  auto asked = octavo::make<octavo_shard_plan>(OCTAVO_KIND_SHARD_PLAN);
  asked.parameter = parameter;
  asked.rows = rows;
  octavo_shard_plan plan = asked, again = asked;
  const octavo_shard &table = *s.context().target.shard;
  s.take_reports();
  const octavo_status status = table.plan(s.handle(), &plan);
  if (status == OCTAVO_UNSUPPORTED) s.expect_reported(status, name);
  expect(table.plan(s.handle(), &again) == status && std::memcmp(&plan, &again, sizeof plan) == 0,
         name, " gave two answers to one question");
  if (status == OCTAVO_UNSUPPORTED) {
    expect(std::memcmp(&plan, &asked, sizeof plan) == 0, name,
           " wrote an answer, though it answered OCTAVO_UNSUPPORTED");
    return std::nullopt;
  }
  expect(status == OCTAVO_OK, name, " answered ", status_name(status),
         "; expected OCTAVO_OK or OCTAVO_UNSUPPORTED");
  expect(plan.parameter == parameter && plan.rows == rows, name, " changed the question");
  expect(plan.packet_bytes > 0 && plan.packet_bytes % OCTAVO_ALIGNMENT == 0, name,
         " has packets of ", plan.packet_bytes, " bytes; expected a multiple of ",
         OCTAVO_ALIGNMENT);
  return plan;
}

Shards::Shards(Host &host, const octavo_shard_plan &plan)
    : host_(host), table_(*host.session().context().target.shard), plan_(plan) {
  const Matrix &w = host.weight(plan.parameter);
  Arena &arena = host.arena();
  name_ =
      text("'", host.session().parameters()[plan.parameter].spec.name, "' by ", plan.rows, " rows");
  for (int64_t first = 0; first < w.rows() + plan.rows; first += plan.rows) {
    const int64_t own = std::clamp<int64_t>(w.rows() - first, 0, plan.rows);
    Matrix shard = make_matrix(arena, text("rows from ", first, " of ", name_), own, w.cols(),
                               w.tensor.dtype, 3);
    for (int64_t row = 0; row < own; ++row)
      std::memcpy(shard.element(row, 0), w.element(first + row, 0),
                  static_cast<uint64_t>(w.cols()) * element_bytes(w.tensor.dtype));
    shards_.push_back(shard);
  }
  const auto scratch = [&](uint64_t bytes, const char *what) {
    return arena.allocate(bytes, Use::kWorkspace, text(what, " of ", name_));
  };
  packets_ = scratch(plan.packet_bytes * shards_.size(), "packets");
  workspace_ = scratch(std::max(plan.cast_workspace, plan.place_workspace), "workspace");
  amax_ = reinterpret_cast<float *>(scratch((shards_.size() + 1) * sizeof(float), "amax"));
}

// `writes`: of place, which writes what quantize_weight writes; else of cast, which reads and
// flags.
std::vector<void *> Shards::slots(bool writes) const {
  std::vector<void *> list;
  for (const Entry &e :
       host_.entries(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, plan_.parameter)) {
    const octavo_slot &desc = host_.session().slots()[e.slot].desc;
    const bool is_weight =
        (desc.flags & OCTAVO_SLOT_NATIVE) != 0 && desc.role == OCTAVO_ROLE_WEIGHT;
    const bool is_there =
        !is_weight && e.access != OCTAVO_ACCESS_NONE &&
        (writes || e.access == OCTAVO_ACCESS_READ || desc.role == OCTAVO_ROLE_NONFINITE);
    list.push_back(is_there ? e.address : nullptr);
  }
  if (list.empty()) list.push_back(nullptr);
  return list;
}

octavo_shard_call Shards::call(size_t rank, void *const *slots) {
  auto c = octavo::make<octavo_shard_call>(OCTAVO_KIND_SHARD_CALL);
  c.parameter = plan_.parameter;
  c.rows = plan_.rows;
  c.shard = &shards_[rank].tensor;
  c.amax = amax_ + (slots == nullptr ? rank : shards_.size());
  c.slots = slots;
  c.packet = slots == nullptr ? nullptr : packets_ + rank * plan_.packet_bytes;
  c.workspace = slots == nullptr ? nullptr : workspace_;
  return c;
}

octavo_gathered_call Shards::gathered(void *const *slots) const {
  auto c = octavo::make<octavo_gathered_call>(OCTAVO_KIND_GATHERED_CALL);
  c.parameter = plan_.parameter;
  c.rows = plan_.rows;
  c.world = static_cast<uint32_t>(shards_.size());
  c.packets = packets_;
  c.amax = amax_ + shards_.size();
  c.slots = slots;
  c.workspace = workspace_;
  return c;
}

void Shards::run(const std::string &what, bool is_fenced,
                 const std::function<octavo_status()> &call) {
  run_fenced(host_, OCTAVO_VERB_QUANTIZE_WEIGHT, text(what, " of ", name_), is_fenced, call);
}

void Shards::gather(bool is_fenced) {
  const Session &s = host_.session();
  std::fill_n(amax_, shards_.size() + 1, 0.0F);
  for (size_t rank = shards_.size(); rank-- > 0;) {
    const octavo_shard_call c = call(rank, nullptr);
    const auto measure = [&] { return table_.measure(s.handle(), &c); };
    run("shard measure", is_fenced, measure);
    // Added to what is there: from more than there is, it stays.
    const float own = *c.amax, more = std::isfinite(own) ? 2 * own + 1 : own;
    *c.amax = more;
    run("shard measure", is_fenced, measure);
    expect(std::isnan(own) || !(*c.amax < more), "shard measure of ", name_, ", rank ", rank,
           ", left ", *c.amax, " where ", more, " was; expected the maximum of both");
    *c.amax = own;
  }
  float &combined = amax_[shards_.size()];
  for (size_t rank = 0; rank < shards_.size(); ++rank) combined = std::max(combined, amax_[rank]);
  const auto read = slots(false), written = slots(true);
  for (size_t rank = shards_.size(); rank-- > 0;) {
    const octavo_shard_call c = call(rank, read.data());
    const auto cast = [&] { return table_.cast(s.handle(), &c); };
    float *const flag = host_.nonfinite();
    const float flagged = flag == nullptr ? 0 : std::exchange(*flag, 0.0F);
    auto *packet = static_cast<uint8_t *>(c.packet);
    if (shards_[rank].rows() == 0) std::memset(packet, 0x5A, plan_.packet_bytes);
    const std::vector<uint8_t> before(packet, packet + plan_.packet_bytes);
    run("shard cast", is_fenced, cast);
    const std::vector<uint8_t> first(packet, packet + plan_.packet_bytes);
    expect(shards_[rank].rows() > 0 || first == before, "shard cast of ", name_, ", rank ", rank,
           ", which has no rows, wrote its packet");
    run("shard cast", is_fenced, cast);
    expect(std::equal(first.begin(), first.end(), packet), "shard cast of ", name_, ", rank ", rank,
           ", wrote other bytes when repeated");
    if (flag == nullptr) continue;
    expect(*flag == 0 || has_nonfinite(values_of(shards_[rank])), "shard cast of ", name_,
           ", rank ", rank,
           ", set the slot of role NONFINITE, and its rows are finite; expected each rank to flag "
           "its own");
    *flag = std::max(*flag, flagged);
  }
  const octavo_gathered_call c = gathered(written.data());
  float *const flag = host_.nonfinite();
  const float flagged = flag == nullptr ? 0 : std::exchange(*flag, 0.0F);
  for (int turn = 0; turn < 2; ++turn)
    run("shard place", is_fenced, [&] { return table_.place(s.handle(), &c); });
  if (flag == nullptr) return;
  expect(*flag == 0, "shard place of ", name_,
         " set the slot of role NONFINITE, which cast did "
         "for its rows");
  *flag = flagged;
}

octavo_status Shards::place_too_few() {
  const auto list = slots(true);
  octavo_gathered_call c = gathered(list.data());
  c.world -= 2;  // the last one has no rows
  return table_.place(host_.session().handle(), &c);
}

}  // namespace octavo::conformance
