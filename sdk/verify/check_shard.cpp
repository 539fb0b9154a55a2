// shard: what octavo.shard/1 places is what quantize_weight leaves for the whole weight.
//
// The weight's own memory holds NaN meanwhile, so that neither place nor the calls of training
// after it can look at the values. All ranks are one host: what one of them must not see is
// another's tensor.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "all_checks.h"
#include "fenced_call.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

class Shards {
 public:
  // The ranks that have rows, and one that has none. Copies the weight.
  Shards(Host &host, const octavo_shard_plan &plan);
  Shards(const Shards &) = delete;
  Shards &operator=(const Shards &) = delete;

  // measure, cast and place, of the last rank first. Each must succeed and repeat; behind the fence
  // it fails when host code of the backend touches memory.
  void gather(bool is_fenced);
  // place of packets that do not have all rows.
  octavo_status place_too_few();

  const std::string &name() const { return name_; }

 private:
  octavo_shard_call call(size_t rank, void *const *slots);
  octavo_gathered_call gathered(void *const *slots) const;
  std::vector<void *> slots(bool writes) const;
  void run(const std::string &what, bool is_fenced, const std::function<octavo_status()> &call);

  Host &host_;
  const octavo_shard &table_;
  const octavo_shard_plan plan_;
  std::vector<Matrix> shards_;
  uint8_t *packets_, *workspace_;
  float *amax_;  // of each rank, then combined
  std::string name_;
};

// What the backend answers for shards of this many rows; nothing if it refuses them.
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

// Rows that blocks do not divide, and padding in both directions.
Model sharded_model() {
  const uint32_t weight = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  return {{{"blocks", 300, 160}, {"small", 20, 33}, {"half", 64, 48, weight, OCTAVO_BF16}},
          {{"blocks", "blocks"}, {"small", "small"}, {"half", "half"}}};
}

// The last is more than any weight has: one rank with all of it.
constexpr int64_t kRowCounts[] = {7, 32, 128, 1000};

void scribble(Host &host, uint32_t parameter, uint8_t pattern) {
  for (const Entry &e :
       host.entries(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, parameter))
    if (e.access == OCTAVO_ACCESS_WRITE) std::memset(e.address, pattern, e.bytes);
}

void check_division(Host &host, const octavo_shard_plan &plan, Batch &batch) {
  Arena &arena = host.arena();
  Shards shards(host, plan);
  const Snapshot start = arena.snapshot();
  const auto train = [&] { host.forward(batch), host.backward(batch); };
  scribble(host, plan.parameter, 0x5A);
  host.quantize_weight(plan.parameter);
  train();
  const Snapshot expected = arena.snapshot();
  const Matrix &w = host.weight(plan.parameter);
  const auto bytes = static_cast<uint64_t>(w.rows() * w.cols()) * element_bytes(w.tensor.dtype);
  for (const uint8_t pattern : {uint8_t{0xA5}, uint8_t{0x00}}) {
    arena.restore(start);
    scribble(host, plan.parameter, pattern);
    const auto values = bytes_of(w);
    std::memset(w.tensor.data, 0xFF, bytes);  // a NaN in every plain dtype
    shards.gather(pattern == 0);
    train();
    std::memcpy(w.tensor.data, values.data(), bytes);
    expect_equal(arena, expected, arena.snapshot(),
                 text("place of ", shards.name(), ", against quantize_weight,"));
  }
  arena.restore(start);
  if (plan.rows >= w.rows()) return;
  const octavo_status status = shards.place_too_few();
  expect(status == OCTAVO_INVALID, "place of ", shards.name(), " without the last packet answered ",
         status_name(status), "; expected OCTAVO_INVALID");
  expect_equal(arena, start, arena.snapshot(), text("a refused place of ", shards.name()));
}

void check_no_plan(Session &s, const char *fault, uint32_t parameter, int64_t rows,
                   uint32_t reserved) {
  auto plan = octavo::make<octavo_shard_plan>(OCTAVO_KIND_SHARD_PLAN);
  plan.parameter = parameter;
  plan.reserved = reserved;
  plan.rows = rows;
  const octavo_shard_plan before = plan;
  s.take_reports();
  const octavo_status status = s.context().target.shard->plan(s.handle(), &plan);
  expect(status == OCTAVO_INVALID && std::memcmp(&before, &plan, sizeof plan) == 0,
         "octavo.shard/1 plan of ", fault, " answered ", status_name(status),
         "; expected OCTAVO_INVALID and no trace");
  s.expect_reported(status, text("octavo.shard/1 plan of ", fault));
}

}  // namespace

void check_shard(const Context &context) {
  if (context.target.shard == nullptr) throw Skip(text("the backend has no ", OCTAVO_SHARD_ID));
  Session s(context);
  s.add(sharded_model());
  s.seal();
  check_no_plan(s, "an unknown parameter", static_cast<uint32_t>(s.parameters().size()), 1, 0);
  check_no_plan(s, "shards without rows", 0, 0, 0);
  check_no_plan(s, "a reserved field", 0, 1, 1);
  Session open(context);
  open.add(sharded_model());
  check_no_plan(open, "a parameter that no seal covers", 0, 7, 0);
  bool is_any = false;
  for (const bool is_finite : {true, false}) {
    for (uint32_t linear = 0; linear < s.linears().size(); ++linear) {
      const uint32_t parameter = s.linears()[linear].weight;
      Host host(s, context.seed);
      Batch &batch = host.add_batch({linear, 16, mix(context.seed, 950 + linear)});
      host.train_step();
      if (!is_finite) {
        Matrix &w = host.weight(parameter);
        w.set(0, 1, -std::numeric_limits<double>::quiet_NaN());
        w.set(w.rows() - 1, 0, std::numeric_limits<double>::infinity());
        w.set(w.rows() / 2, 2, -0.0);
      }
      bool is_one = false;
      for (const int64_t rows : kRowCounts) {
        const auto plan = shard_plan(s, parameter, rows);
        is_one |= plan.has_value();
        if (plan) check_division(host, *plan, batch);
        expect(rows < s.parameters()[parameter].spec.rows || plan || !is_one,
               "octavo.shard/1 plan of '", s.parameters()[parameter].spec.name,
               "' refuses one rank with all rows, though it accepts several");
      }
      is_any |= is_one;
    }
  }
  if (!is_any) throw Skip("the backend refuses every division of a weight with these options");
}

}  // namespace octavo::conformance
