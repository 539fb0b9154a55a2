// grouped: forward and backward of octavo.grouped/1 leave the bytes of one call for each linear.
//
// Both ways share tensors and slots, so the check runs one, takes a snapshot, goes back and runs
// the other. `saved` may be divided in another way, so what it holds is judged by the backward.
#include <cstring>

#include "all_checks.h"
#include "grouped.h"
#include "report.h"

namespace octavo::conformance {
namespace {

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
