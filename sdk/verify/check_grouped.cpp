// grouped: forward and backward of octavo.grouped/1 leave the bytes of one call for each linear.
//
// Both ways share tensors and slots, so the check runs one, takes a snapshot, goes back and runs
// the other. Each has saved and workspaces of its own: `saved` may be divided in another way, so
// what it holds is judged by the backward.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "all_checks.h"
#include "fenced_call.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

struct GroupSpec {
  std::vector<uint32_t> linears;
  std::vector<int64_t> rows;  // of each
  uint32_t dtype = OCTAVO_F32;
  int64_t gap = 0;
  uint32_t flags = 0;       // of backward
  bool evaluates = false;   // and nothing is saved
  bool is_complete = true;  // false: no bias, dx and db
};

class Group {
 public:
  Group(Host &host, const GroupSpec &spec, uint64_t seed);
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  // Forward and backward; all must succeed. Behind the fence it fails when host code of the backend
  // touches memory.
  void together(bool is_fenced);
  void one_by_one();
  // Fills all that both ways overwrite with a byte.
  void scribble(uint8_t pattern);
  // The raw verbs, on other lists: both must answer OCTAVO_INVALID.
  void expect_refused(const char *fault, const std::vector<uint32_t> &linears,
                      const std::vector<int64_t> &offsets, uint32_t count);

  const std::vector<int64_t> &offsets() const { return offsets_; }
  const std::string &name() const { return name_; }

 private:
  struct Lists {
    std::vector<std::vector<void *>> all;
    std::vector<void *const *> pointers;
  };
  struct Own {
    uint8_t *saved, *forward_workspace, *backward_workspace;
  };

  int64_t m() const { return offsets_.back(); }
  octavo_grouped_plan plan() const;
  uint8_t *allocate(const octavo_extent &extent, int64_t rows, Use use, const char *what);
  Lists lists(uint32_t verb) const;
  octavo_grouped_forward_call forward_call(const Lists &lists);
  octavo_grouped_backward_call backward_call(const Lists &lists);
  void run(uint32_t verb, const char *what, bool is_fenced,
           const std::function<octavo_status()> &call);

  Host &host_;
  const Session &s_;
  const octavo_grouped &table_;
  GroupSpec spec_;
  std::vector<int64_t> offsets_;
  Matrix x_, y_, dy_, dx_, bias_, db_;
  octavo_grouped_plan plan_{};
  uint8_t *saved_ = nullptr, *forward_workspace_ = nullptr, *backward_workspace_ = nullptr;
  std::vector<Own> own_;
  std::vector<octavo_tensor *> dw_;
  std::string name_;
};

std::string name_of(const GroupSpec &spec) {
  std::string ids;
  for (size_t i = 0; i < spec.linears.size(); ++i)
    ids += text(i == 0 ? "" : ", ", spec.linears[i], " with ", spec.rows[i], " rows");
  return text("linears ", ids, " of ", dtype_name(spec.dtype));
}

octavo_tensor slice(const Matrix &all, int64_t first, int64_t rows) {
  octavo_tensor t = all.tensor;
  t.rows = rows;
  if (all.rows() > 0)
    t.data = all.element(0, 0) + static_cast<uint64_t>(first * t.stride) * element_bytes(t.dtype);
  return t;
}

Group::Group(Host &host, const GroupSpec &spec, uint64_t seed)
    : host_(host), s_(host.session()), table_(*s_.context().target.grouped), spec_(spec) {
  spec_.dtype = s_.taken(spec.linears[0], spec_.dtype);
  offsets_.push_back(0);
  for (const int64_t rows : spec.rows) offsets_.push_back(offsets_.back() + rows);
  const auto count = static_cast<int64_t>(spec.linears.size());
  const Matrix &w = host.weight(s_.linears()[spec.linears[0]].weight);
  name_ = name_of(spec_);
  const auto matrix = [&](const char *what, int64_t rows, int64_t cols, uint32_t dtype) {
    return make_matrix(host.arena(), text(what, " of ", name_), rows, cols, dtype, spec.gap);
  };
  x_ = matrix("x", m(), w.cols(), spec_.dtype), y_ = matrix("y", m(), w.rows(), spec_.dtype);
  dy_ = matrix("dy", m(), w.rows(), spec_.dtype), dx_ = matrix("dx", m(), w.cols(), spec_.dtype);
  bias_ = matrix("bias", count, w.rows(), spec_.dtype);
  db_ = matrix("db", count, w.rows(), OCTAVO_F32);
  fill(x_, mix(seed, 1), 2), fill(dy_, mix(seed, 2), 0.25), fill(bias_, mix(seed, 3), 1);
  plan_ = plan();
  saved_ = allocate(plan_.saved, m(), Use::kSaved, "saved");
  forward_workspace_ = allocate(plan_.forward_workspace, m(), Use::kWorkspace, "forward workspace");
  backward_workspace_ =
      allocate(plan_.backward_workspace, m(), Use::kWorkspace, "backward workspace");
  for (size_t i = 0; i < spec.linears.size(); ++i) {
    const octavo_linear_plan &plan = s_.linears()[spec.linears[i]].plan;
    own_.push_back({allocate(plan.saved, spec.rows[i], Use::kSaved, "saved of one"),
                    allocate(plan.forward_workspace, spec.rows[i], Use::kWorkspace,
                             "forward workspace of one"),
                    allocate(plan.backward_workspace, spec.rows[i], Use::kWorkspace,
                             "backward workspace of one")});
  }
}

uint8_t *Group::allocate(const octavo_extent &extent, int64_t rows, Use use, const char *what) {
  return host_.arena().allocate(extent_bytes(extent, rows), use, text(what, " of ", name_));
}

octavo_grouped_plan Group::plan() const {
  const auto &linears = spec_.linears;
  octavo_grouped_plan answers[2] = {};
  for (octavo_grouped_plan &plan : answers) {
    plan.size = sizeof plan;
    plan.kind = OCTAVO_KIND_GROUPED_PLAN;
    const octavo_status status =
        table_.plan(s_.handle(), linears.data(), static_cast<uint32_t>(linears.size()), &plan);
    expect(status == OCTAVO_OK, "octavo.grouped/1 plan of ", name_, " answered ",
           status_name(status));
  }
  const octavo_grouped_plan &plan = answers[0];
  expect(std::memcmp(&answers[0], &answers[1], sizeof plan) == 0, "octavo.grouped/1 plan of ",
         name_, " gave two answers to one question");
  uint32_t needs_x = 0;
  for (const uint32_t id : linears) needs_x |= s_.linears()[id].plan.flags & OCTAVO_LINEAR_NEEDS_X;
  expect(plan.flags == needs_x, "octavo.grouped/1 plan of ", name_, " has flags ", plan.flags,
         "; those of its linears are ", needs_x);
  for (const octavo_extent *e : {&plan.saved, &plan.forward_workspace, &plan.backward_workspace})
    expect_extent(text("octavo.grouped/1 plan of ", name_), *e);
  return plan;
}

Group::Lists Group::lists(uint32_t verb) const {
  Lists l;
  for (const uint32_t id : spec_.linears)
    l.all.push_back(host_.list(verb, OCTAVO_OWNER_LINEAR, id, {}));
  for (const auto &list : l.all) l.pointers.push_back(list.data());
  return l;
}

octavo_grouped_forward_call Group::forward_call(const Lists &lists) {
  auto c = octavo::make<octavo_grouped_forward_call>(OCTAVO_KIND_GROUPED_FORWARD_CALL);
  c.linears = spec_.linears.data();
  c.offsets = offsets_.data();
  c.count = static_cast<uint32_t>(spec_.linears.size());
  c.flags = spec_.evaluates ? uint32_t{OCTAVO_FORWARD_EVALUATION} : 0u;
  c.x = &x_.tensor;
  c.y = &y_.tensor;
  c.bias = spec_.is_complete ? &bias_.tensor : nullptr;
  c.slots = lists.pointers.data();
  c.saved = spec_.evaluates ? nullptr : saved_;
  c.workspace = forward_workspace_;
  return c;
}

octavo_grouped_backward_call Group::backward_call(const Lists &lists) {
  dw_.clear();
  for (const uint32_t id : spec_.linears) {
    const Linear &l = s_.linears()[id];
    const bool takes_dw = l.plan.gradient == OCTAVO_GRADIENT_TENSOR;
    dw_.push_back(takes_dw ? &host_.dw(l.weight).tensor : nullptr);
  }
  auto c = octavo::make<octavo_grouped_backward_call>(OCTAVO_KIND_GROUPED_BACKWARD_CALL);
  c.linears = spec_.linears.data();
  c.offsets = offsets_.data();
  c.count = static_cast<uint32_t>(spec_.linears.size());
  c.flags = spec_.flags;
  c.dy = &dy_.tensor;
  c.x = (plan_.flags & OCTAVO_LINEAR_NEEDS_X) != 0 ? &x_.tensor : nullptr;
  c.dx = spec_.is_complete ? &dx_.tensor : nullptr;
  c.dw = dw_.data();
  c.db = spec_.is_complete ? &db_.tensor : nullptr;
  c.slots = lists.pointers.data();
  c.saved = saved_;
  c.workspace = backward_workspace_;
  return c;
}

void Group::run(uint32_t verb, const char *what, bool is_fenced,
                const std::function<octavo_status()> &call) {
  run_fenced(host_, verb, text(what, " of ", name_), is_fenced, call);
}

void Group::together(bool is_fenced) {
  const Lists forward_lists = lists(OCTAVO_VERB_FORWARD);
  const auto f = forward_call(forward_lists);
  run(OCTAVO_VERB_FORWARD, "grouped forward", is_fenced,
      [&] { return table_.forward(s_.handle(), &f); });
  if (spec_.evaluates) return;
  const Lists backward_lists = lists(OCTAVO_VERB_BACKWARD);
  const auto b = backward_call(backward_lists);
  run(OCTAVO_VERB_BACKWARD, "grouped backward", is_fenced,
      [&] { return table_.backward(s_.handle(), &b); });
}

void Group::one_by_one() {
  const Lists forward_lists = lists(OCTAVO_VERB_FORWARD);
  const auto f = forward_call(forward_lists);
  for (size_t i = 0; i < spec_.linears.size(); ++i) {
    const octavo_tensor x = slice(x_, offsets_[i], spec_.rows[i]);
    const octavo_tensor bias = slice(bias_, static_cast<int64_t>(i), 1);
    octavo_tensor y = slice(y_, offsets_[i], spec_.rows[i]);
    auto c = octavo::make<octavo_forward_call>(OCTAVO_KIND_FORWARD_CALL);
    c.linear = spec_.linears[i];
    c.flags = f.flags;
    c.x = &x;
    c.y = &y;
    c.bias = f.bias != nullptr ? &bias : nullptr;
    c.slots = f.slots[i];
    c.saved = spec_.evaluates ? nullptr : own_[i].saved;
    c.workspace = own_[i].forward_workspace;
    run(OCTAVO_VERB_FORWARD, "linear_forward", false,
        [&] { return s_.backend().linear_forward(s_.handle(), &c); });
  }
  if (spec_.evaluates) return;
  const Lists backward_lists = lists(OCTAVO_VERB_BACKWARD);
  const auto b = backward_call(backward_lists);
  for (size_t i = 0; i < spec_.linears.size(); ++i) {
    const octavo_tensor x = slice(x_, offsets_[i], spec_.rows[i]);
    const octavo_tensor dy = slice(dy_, offsets_[i], spec_.rows[i]);
    octavo_tensor dx = slice(dx_, offsets_[i], spec_.rows[i]);
    octavo_tensor db = slice(db_, static_cast<int64_t>(i), 1);
    auto c = octavo::make<octavo_backward_call>(OCTAVO_KIND_BACKWARD_CALL);
    c.linear = spec_.linears[i];
    c.flags = b.flags;
    c.dy = &dy;
    c.x = b.x != nullptr ? &x : nullptr;
    c.dx = b.dx != nullptr ? &dx : nullptr;
    c.dw = dw_[i];
    c.db = b.db != nullptr ? &db : nullptr;
    c.slots = b.slots[i];
    c.saved = own_[i].saved;
    c.workspace = own_[i].backward_workspace;
    run(OCTAVO_VERB_BACKWARD, "linear_backward", false,
        [&] { return s_.backend().linear_backward(s_.handle(), &c); });
  }
}

void Group::scribble(uint8_t pattern) {
  std::vector<const Matrix *> outputs{&y_};
  if (!spec_.evaluates && spec_.is_complete) outputs.push_back(&dx_);
  for (const Matrix *out : outputs)
    for (int64_t row = 0; row < out->rows(); ++row)
      std::memset(out->element(row, 0), pattern,
                  static_cast<uint64_t>(out->cols()) * element_bytes(out->tensor.dtype));
  std::memset(saved_, pattern, extent_bytes(plan_.saved, m()));
}

void Group::expect_refused(const char *fault, const std::vector<uint32_t> &linears,
                           const std::vector<int64_t> &offsets, uint32_t count) {
  const Lists forward_lists = lists(OCTAVO_VERB_FORWARD);
  const Lists backward_lists = lists(OCTAVO_VERB_BACKWARD);
  auto f = forward_call(forward_lists);
  auto b = backward_call(backward_lists);
  f.linears = b.linears = linears.data();
  f.offsets = b.offsets = offsets.data();
  f.count = b.count = count;
  const octavo_status forward = table_.forward(s_.handle(), &f);
  const octavo_status backward = table_.backward(s_.handle(), &b);
  expect(forward == OCTAVO_INVALID && backward == OCTAVO_INVALID, "forward and backward of ", name_,
         " with ", fault, " answered ", status_name(forward), " and ", status_name(backward),
         "; expected OCTAVO_INVALID");
}

// Linears of one shape: a bf16 weight, a frozen one, two on one weight. And one of another shape.
Model experts() {
  const uint32_t weight = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  return {{{"first", 20, 33},
           {"second", 20, 33, weight, OCTAVO_BF16},
           {"frozen", 20, 33, weight | OCTAVO_PARAMETER_FROZEN},
           {"other", 33, 20}},
          {{"first", "first"},
           {"second", "second"},
           {"frozen", "frozen"},
           {"tied", "first"},
           {"other", "other"}}};
}

std::vector<GroupSpec> specs_of(const Session &s, const std::vector<uint32_t> &all) {
  const uint32_t narrow = s.taken(all[0], OCTAVO_BF16);
  std::vector<uint32_t> reversed(all.rbegin(), all.rend());
  const auto rows = [&](std::vector<int64_t> r) {
    r.resize(all.size(), 3);
    return r;
  };
  return {{all, rows({5, 0, 16, 1}), OCTAVO_F32, 3},
          {reversed, rows({17, 2, 0, 8}), narrow},
          {all, std::vector<int64_t>(all.size(), 0)},
          {{all[0]}, {7}, narrow, 1, OCTAVO_BACKWARD_OVERWRITE},
          {all, rows({0, 33, 0, 0}), OCTAVO_F32, 0, OCTAVO_BACKWARD_OVERWRITE},
          {all, rows({4, 4, 4, 4}), OCTAVO_F32, 0, OCTAVO_BACKWARD_SKIP_WEIGHT},
          {all, rows({1, 9, 2, 6}), OCTAVO_F32, 2, 0, true},
          {all, rows({3, 1, 4, 11}), narrow, 0, 0, false, false}};
}

void check_group(Host &host, Group &group) {
  Arena &arena = host.arena();
  const Snapshot start = arena.snapshot();
  group.scribble(0x5A);
  group.one_by_one();
  const Snapshot expected = arena.snapshot();
  for (const uint8_t pattern : {uint8_t{0xA5}, uint8_t{0x00}}) {
    arena.restore(start);
    group.scribble(pattern);
    group.together(pattern == 0);
    expect_equal(arena, expected, arena.snapshot(),
                 text("one call of ", group.name(), ", against a call for each"),
                 [](const Region &region) { return region.use == Use::kSaved; });
  }
  arena.restore(start);
}

// Calls that must be refused before anything is written.
void check_refusals(Host &host, Group &group, const GroupSpec &spec) {
  const Snapshot start = host.arena().snapshot();
  const auto count = static_cast<uint32_t>(spec.linears.size());
  auto unknown = spec.linears;
  unknown.back() = static_cast<uint32_t>(host.session().linears().size());
  group.expect_refused("an unknown linear", unknown, group.offsets(), count);
  auto beyond = group.offsets(), late = beyond, back = beyond;
  ++beyond.back(), ++late.front(), back[1] = back[2] + 1;
  group.expect_refused("offsets beyond M", spec.linears, beyond, count);
  group.expect_refused("offsets that do not begin at 0", spec.linears, late, count);
  group.expect_refused("offsets that decrease", spec.linears, back, count);
  group.expect_refused("no linear", spec.linears, group.offsets(), 0);
  expect_equal(host.arena(), start, host.arena().snapshot(), "a refused call of " + group.name());
}

// A list that has no plan.
void check_no_plan(const Session &s, const char *fault, const std::vector<uint32_t> &linears) {
  auto plan = octavo::make<octavo_grouped_plan>(OCTAVO_KIND_GROUPED_PLAN);
  const octavo_grouped_plan before = plan;
  const octavo_status status = s.context().target.grouped->plan(
      s.handle(), linears.data(), static_cast<uint32_t>(linears.size()), &plan);
  expect(status == OCTAVO_INVALID && std::memcmp(&before, &plan, sizeof plan) == 0,
         "octavo.grouped/1 plan of ", fault, " answered ", status_name(status),
         "; expected OCTAVO_INVALID and no trace");
}

}  // namespace

void check_grouped(const Context &context) {
  if (context.target.grouped == nullptr) throw Skip(text("the backend has no ", OCTAVO_GROUPED_ID));
  if ((context.target.desc.caps->flags & OCTAVO_CAPS_EXACT_GEMM) == 0)
    throw Skip("the products of these kernels are not exact to the bit");
  Session s(context);
  s.add(experts());
  s.seal();
  std::vector<uint32_t> all;
  for (const char *name : {"first", "second", "frozen", "tied"})
    if (const auto id = s.find_linear(name)) all.push_back(*id);
  expect(all.size() >= 2, "the backend declined the linears to group: ", s.declined());
  Host host(s, context.seed);
  for (const uint32_t id : all) host.add_batch({id, 16, mix(context.seed, 800 + id)});
  host.train_step();
  host.quantize_weights();
  // Something to overwrite, and to add to.
  for (const uint32_t id : all) fill(host.dw(s.linears()[id].weight), mix(context.seed, 850), 0.25);
  check_no_plan(s, "no linear", {});
  check_no_plan(s, "one linear twice", {all[0], all[1], all[0]});
  check_no_plan(s, "an unknown linear", {all[0], static_cast<uint32_t>(s.linears().size())});
  if (const auto other = s.find_linear("other"))
    check_no_plan(s, "weights of two shapes", {all[0], *other});
  uint64_t i = 0;
  for (const GroupSpec &spec : specs_of(s, all)) {
    Group group(host, spec, mix(context.seed, 900 + i++));
    check_group(host, group);
    if (i == 1) check_refusals(host, group, spec);
  }
}

}  // namespace octavo::conformance
