// twice and late: one layer several times in a step, tied weights, and a model that grows.
//
// Contributions to dw are added in the order of the calls, so sums are compared to a tolerance; a
// gradient slot in FP8 is rounded after each addition and gets the tolerance of its format.
#include <cmath>
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

void expect_sum(const std::vector<double> &found, const std::vector<std::vector<double>> &parts,
                double tolerance, const std::string &what) {
  double largest = 0;
  for (const auto &part : parts) {
    for (const double value : part) largest = std::max(largest, std::fabs(value));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    double sum = 0;
    for (const auto &part : parts) sum += part[i];
    expect(std::fabs(found[i] - sum) <= tolerance * largest * static_cast<double>(parts.size()),
           what, ": element ", i, " should be ", sum, ", the sum of ", parts.size(),
           " separate calls, but is ", found[i]);
  }
}

// A unit in the last place of the largest sum, as a share of it: each addition rounds once.
double rounding_of(uint32_t dtype) {
  return dtype == OCTAVO_F32 ? 0x1p-20 : dtype == OCTAVO_BF16 ? 0x1p-7 : 0x1p-10;
}

// Forward and backward of these batches in one step, against each of them alone.
void check_sum(Host &host, const std::vector<Batch *> &batches, const std::string &what) {
  const Linear &linear = host.session().linears()[batches[0]->spec.linear];
  if (linear.plan.gradient == OCTAVO_GRADIENT_NONE) return;
  // E5M2 is the coarsest format a gradient slot can have: half a unit is 2^-3 of the value.
  const double tolerance = linear.plan.gradient == OCTAVO_GRADIENT_SLOT
                               ? 0x1p-3
                               : rounding_of(host.dw(linear.weight).tensor.dtype);
  std::vector<std::vector<double>> parts, db;
  std::vector<std::vector<uint8_t>> y, dx;
  Call overwrite;
  overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
  for (Batch *batch : batches) {
    host.forward(*batch);
    host.backward(*batch, overwrite);
    parts.push_back(host.gradient(linear.weight));
    db.push_back(values_of(batch->db));
    y.push_back(bytes_of(batch->y));
    dx.push_back(bytes_of(batch->dx));
  }
  // The same with db, which each batch has for itself.
  host.clear_gradients();
  for (int call = 0; call < 2; ++call)
    for (Batch *batch : batches) host.backward(*batch);
  for (size_t i = 0; i < batches.size(); ++i)
    expect_sum(values_of(batches[i]->db), {db[i], db[i]}, rounding_of(batches[i]->db.tensor.dtype),
               text("db of ", what));
  for (const bool reverse : {false, true}) {
    host.clear_gradients();
    for (Batch *batch : batches) host.forward(*batch);
    for (size_t i = 0; i < batches.size(); ++i) {
      host.backward(*batches[reverse ? batches.size() - 1 - i : i]);
    }
    expect_sum(host.gradient(linear.weight), parts, tolerance, text("dw of ", what));
    for (size_t i = 0; i < batches.size(); ++i) {
      expect_equal_bits(batches[i]->y, y[i], text("y of ", what));
      expect_equal_bits(batches[i]->dx, dx[i], text("dx of ", what));
    }
  }
  host.clear_gradients();
}

// Gradients of 16 bits are added to like those of 32.
void check_narrow(const Context &context) {
  Session s(context);
  Model model;
  for (const uint32_t dtype : {OCTAVO_BF16, OCTAVO_F16}) {
    if (!s.kernels().reads(dtype)) continue;
    const std::string name = dtype_name(dtype);
    model.parameters.push_back({name, 17, 33, OCTAVO_PARAMETER_LINEAR_WEIGHT, OCTAVO_F32, dtype});
    model.linears.push_back({name, name});
  }
  s.add(model, true);
  s.seal();
  Host host(s, context.seed);
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    BatchSpec spec{id, 9, mix(context.seed, 300 + id)};
    spec.db_dtype = s.parameters()[s.linears()[id].weight].spec.gradient_dtype;
    Batch &one = host.add_batch(spec);
    spec.seed = mix(spec.seed, 1);
    Batch &other = host.add_batch(spec);
    host.quantize_weights();
    check_sum(host, {&one, &other}, text("two calls of '", s.linears()[id].name, "'"));
  }
}

}  // namespace

void check_twice(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  host.quantize_weights();
  const auto batches_of = [&](uint32_t linear) {
    std::vector<Batch *> batches;
    for (Batch &batch : host.batches()) {
      if (batch.spec.linear == linear) batches.push_back(&batch);
    }
    return batches;
  };
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    check_sum(host, batches_of(id), text("two calls of '", s.linears()[id].name, "'"));
  }
  const auto a = s.find_linear("tied.a");
  const auto b = s.find_linear("tied.b");
  expect(a.has_value() == b.has_value(), "of two linears on one weight only one was accepted");
  if (a)
    check_sum(host, {batches_of(*a)[0], batches_of(*b)[0]}, "'tied.a' and 'tied.b' on one weight");
  check_narrow(context);
}

void check_late(const Context &context) {
  const auto train = [](Host &host, int steps) {
    for (int step = 0; step < steps; ++step) host.train_step();
  };
  Standard expected_run(context);
  Host &expected = expected_run.host;
  train(expected, 2);

  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  train(host, 2);
  const auto parameters = static_cast<uint32_t>(s.parameters().size());
  const auto linears = static_cast<uint32_t>(s.linears().size());
  const auto uses_of = [&] {
    std::vector<std::vector<octavo_slot_use>> uses;
    for (uint32_t id = 0; id < parameters; ++id) uses.push_back(s.uses(OCTAVO_OWNER_PARAMETER, id));
    for (uint32_t id = 0; id < linears; ++id) uses.push_back(s.uses(OCTAVO_OWNER_LINEAR, id));
    return uses;
  };
  const auto uses = uses_of();
  s.add(late_model());
  for (Host *open : {&host, &expected}) train(*open, 1);  // sealed objects work in OPEN
  s.seal();
  host.extend();
  const auto later = uses_of();
  for (size_t i = 0; i < uses.size(); ++i) {
    expect(uses[i].size() == later[i].size(), "the second seal changed the list of an old ",
           i < parameters ? text("parameter '", s.parameters()[i].spec.name, "'")
                          : text("linear '", s.linears()[i - parameters].name, "'"),
           " from ", uses[i].size(), " to ", later[i].size(), " positions");
  }
  for (uint32_t id = 0; id < linears; ++id) {
    const octavo_linear_plan &old = s.linears()[id].plan;
    const octavo_linear_plan now = s.plan(id);
    const auto same = [](const octavo_extent &x, const octavo_extent &y) {
      return x.row_multiple == y.row_multiple && x.bytes_per_row == y.bytes_per_row &&
             x.fixed_bytes == y.fixed_bytes;
    };
    expect(old.flags == now.flags && old.gradient == now.gradient && same(old.saved, now.saved) &&
               same(old.forward_workspace, now.forward_workspace) &&
               same(old.backward_workspace, now.backward_workspace) &&
               old.weight_workspace == now.weight_workspace,
           "the second seal changed the plan of the old linear '", s.linears()[id].name, "'");
  }
  // Old objects go on as if nothing had been added: both runs have the same bytes at the same
  // places, since memory of the second seal lies behind.
  train(host, 1);
  train(expected, 1);
  expect_equal(expected.arena(), expected.arena().snapshot(), host.arena().snapshot(),
               "a step after the second seal, against a run without it");
  // New objects work, together with the old ones.
  if (s.linears().size() == linears) {
    throw Failure(
        text("the backend declined every linear of the second seal (", s.declined(), ")"));
  }
  for (auto id = linears; id < s.linears().size(); ++id) {
    Batch &batch = host.add_batch({id, 11, mix(context.seed, 500 + id)});
    host.quantize_weight(s.linears()[id].weight);
    check_sum(host, {&batch}, text("the new linear '", s.linears()[id].name, "'"));
    double largest = 0;
    for (const double value : values_of(batch.y)) largest = std::max(largest, std::fabs(value));
    expect(largest > 0 && std::isfinite(largest), "y of the new linear '", s.linears()[id].name,
           "' has the largest magnitude ", largest, "; a finite one above 0 was expected");
  }
  train(host, 2);
  for (const auto &[slot, unused] : host.make_accumulators("none"))
    for (uint64_t at = 0; at < host.bytes(slot); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, host.address(slot) + at, sizeof value);
      expect(value == 0, host.slot_name(slot), ", column ", at / sizeof value,
             " should be empty after end_step, of objects of each seal, but is ", value);
    }
}

}  // namespace octavo::conformance
