// shard: what octavo.shard/1 places is what quantize_weight leaves for the whole weight.
//
// The weight's own memory holds NaN meanwhile, so that neither place nor the calls of training
// after it can look at the values.
#include <cstring>
#include <limits>

#include "all_checks.h"
#include "report.h"
#include "shards.h"

namespace octavo::conformance {
namespace {

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
