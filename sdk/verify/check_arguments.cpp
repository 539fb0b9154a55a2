// purity.arguments and purity.optimizer: one verb called again, or with other flags, from equal
// memory.
//
// SKIP_WEIGHT, OVERWRITE and null outputs select parts of one result; they never change a part.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

bool is_gradient(const Region &region) {
  return region.role == OCTAVO_ROLE_GRADIENT;
}
bool is_no_slot(const Region &region) {
  return region.use != Use::kSlot;
}
bool is_no_result_of_backward(const Region &region) {
  return !is_gradient(region) && region.name.rfind("dx of ", 0) != 0;
}
bool is_recorded(const Region &region) {
  return region.role == OCTAVO_ROLE_AMAX || region.role == OCTAVO_ROLE_NONFINITE ||
         region.use == Use::kSum;
}
bool is_no_record(const Region &region) {
  return is_no_slot(region) || is_gradient(region);
}
bool is_saved(const Region &region) {
  return region.use == Use::kSaved;
}

// Steps as hosts have them: end_step again without a call in between, after evaluations only, and
// training behind it.
void check_end_steps(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  host.train_step();
  Call evaluation;
  evaluation.evaluates = true;
  evaluation.save = evaluation.record = false;
  for (int step = 0; step < 3; ++step) {
    Call later;
    later.later = step == 1;
    host.end_step(later);
    for (const Slot &slot : s.slots()) {
      if (slot.desc.role != OCTAVO_ROLE_SCALE || slot.desc.dtype != OCTAVO_F32) continue;
      for (uint64_t at = 0; at < host.bytes(slot.desc.id); at += sizeof(float)) {
        const double scale = decode(OCTAVO_F32, host.address(slot.desc.id) + at);
        expect(scale > 0 && std::isfinite(scale), host.slot_name(slot.desc.id), ", column ",
               at / sizeof(float), ", is ", scale, " after end_step without a call before it");
      }
    }
    for (Batch &batch : host.batches()) host.forward(batch, evaluation);
  }
  host.train_step();
  for (const Batch &batch : host.batches())
    for (const double y : values_of(batch.y))
      expect(std::isfinite(y), "y of ", batch.name, " is ", y,
             " after end_step three times in a row");
}

// A verb that must not succeed, with one operand in another shape or dtype.
void call_with(Host &host, Batch &batch, Matrix &operand, const octavo_tensor &other,
               const std::string &name, void (Host::*verb)(Batch &, const Call &),
               octavo_status expected) {
  Call refused;
  refused.expected = expected;
  const std::string own_name = std::exchange(batch.name, name);
  const octavo_tensor own = std::exchange(operand.tensor, other);
  (host.*verb)(batch, refused);
  operand.tensor = own;
  batch.name = own_name;
}

octavo_tensor in_dtype(octavo_tensor t, uint32_t dtype) {
  t.dtype = dtype;
  return t;
}

// A dtype that the plan declines is answered, and nothing is written.
void check_declined(const Context &context) {
  Standard standard(context);
  Host &host = standard.host;
  host.train_step();
  host.quantize_weights();
  for (Batch &batch : host.batches()) {
    const uint32_t flags = standard.session.linears()[batch.spec.linear].plan.flags;
    const bool needs_x = (flags & OCTAVO_LINEAR_NEEDS_X) != 0;
    const uint32_t declined = flags & (OCTAVO_LINEAR_DECLINES_F32 | OCTAVO_LINEAR_DECLINES_BF16 |
                                       OCTAVO_LINEAR_DECLINES_F16);
    if (declined == 0) continue;
    // Before a forward, so that what the first one records shows.
    const Snapshot clean = host.arena().snapshot();
    host.forward(batch);
    const Snapshot after = host.arena().snapshot();
    const auto refuses = [&](Matrix &operand, const char *what, uint32_t dtype, auto verb) {
      const Snapshot &before = verb == &Host::forward ? clean : after;
      host.arena().restore(before);
      const std::string name =
          text(batch.name, " with ", what, " in ", dtype_name(dtype), ", which the plan declines,");
      call_with(host, batch, operand, in_dtype(operand.tensor, dtype), name, verb,
                OCTAVO_UNSUPPORTED);
      expect_equal(host.arena(), before, host.arena().snapshot(), text("a call of ", name));
    };
    for (const uint32_t dtype : {OCTAVO_F32, OCTAVO_BF16, OCTAVO_F16}) {
      if ((declined & declined_flag(dtype)) == 0) continue;
      refuses(batch.x, "x", dtype, &Host::forward);
      refuses(batch.y, "y", dtype, &Host::forward);
      refuses(batch.dy, "dy", dtype, &Host::backward);
      refuses(batch.dx, "dx", dtype, &Host::backward);
      if (needs_x) refuses(batch.x, "x", dtype, &Host::backward);
    }
  }
}

// Codes and dtypes that nobody knows are no values of a linear, and each matrix has one shape.
void check_other_operands(const Context &context) {
  Standard standard(context);
  Host &host = standard.host;
  host.train_step();
  host.quantize_weights();
  const Snapshot clean = host.arena().snapshot();
  for (Batch &batch : host.batches()) {
    const octavo_linear_plan &plan = standard.session.linears()[batch.spec.linear].plan;
    const auto refuses = [&](Matrix &operand, const char *what, auto verb) {
      const octavo_tensor own = operand.tensor;
      if (own.data == nullptr) return;
      const auto with = [&](const octavo_tensor &other, const std::string &how, uint32_t status) {
        const std::string name = text(batch.name, " with ", what, how);
        standard.session.take_reports();
        call_with(host, batch, operand, other, name, verb, status);
        standard.session.expect_reported(status, text("a call of ", name));
        expect_equal(host.arena(), clean, host.arena().snapshot(), text("a call of ", name),
                     [](const Region &region) {
                       return region.use != Use::kSlot && region.use != Use::kSum;
                     });
        host.arena().restore(clean);
      };
      for (const uint32_t dtype : {OCTAVO_E4M3FN, 0x0611u})
        with(in_dtype(own, dtype), text(" in ", dtype_name(dtype)), OCTAVO_UNSUPPORTED);
      octavo_tensor other = own;
      if (--other.rows > 0) with(other, text(" of ", own.rows, " - 1 rows"), OCTAVO_INVALID);
      other = own;
      if (--other.cols > 0) with(other, text(" of ", own.cols, " - 1 columns"), OCTAVO_INVALID);
      other = own;
      ++other.rows;
      with(other, text(" of ", own.rows, " + 1 rows"), OCTAVO_INVALID);
      other = own;
      other.reserved = 1;
      with(other, " with reserved = 1", OCTAVO_UNSUPPORTED);
    };
    refuses(batch.x, "x", &Host::forward);
    refuses(batch.y, "y", &Host::forward);
    refuses(batch.bias, "bias", &Host::forward);
    refuses(batch.dy, "dy", &Host::backward);
    refuses(batch.dx, "dx", &Host::backward);
    refuses(batch.db, "db", &Host::backward);
    if ((plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0) refuses(batch.x, "x", &Host::backward);
    refuses(batch.dw, "dw", &Host::backward);
  }
}

}  // namespace

void check_arguments(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  check_end_steps(context);
  check_declined(context);
  check_other_operands(context);
  for (Batch &batch : host.batches()) {
    const uint32_t weight = s.linears()[batch.spec.linear].weight;
    const octavo_linear_plan &plan = s.linears()[batch.spec.linear].plan;
    const std::string &name = batch.name;
    const uint64_t saved_bytes = extent_bytes(plan.saved, batch.spec.rows);
    uint8_t *const elsewhere =
        host.arena().allocate(saved_bytes, Use::kSaved, text("another saved of ", name));
    if (plan.gradient == OCTAVO_GRADIENT_NONE) fill(host.dw(weight), context.seed, 1);
    const Snapshot clean = host.arena().snapshot();
    // After `calls`, from equal memory, the arena holds what it holds after `reference`.
    const auto same = [&](const std::string &what, const std::function<void()> &reference,
                          const std::function<void()> &calls,
                          bool (*ignored)(const Region &) = nullptr) {
      host.arena().restore(clean);
      reference();
      const Snapshot expected = host.arena().snapshot();
      host.arena().restore(clean);
      calls();
      expect_equal(host.arena(), expected, host.arena().snapshot(), text(what, " of ", name),
                   ignored);
    };
    Call silent;
    silent.record = false;
    same(
        "quantize_weight with null for each accumulator", [&] { host.quantize_weight(weight); },
        [&] { host.quantize_weight(weight, silent); }, is_recorded);
    const auto start = [&] {
      host.quantize_weight(weight);
      host.forward(batch);
    };
    same(
        "quantize_weight twice", [&] { host.quantize_weight(weight); },
        [&] {
          host.quantize_weight(weight);
          host.quantize_weight(weight);
        });
    same("linear_forward twice", start, [&] {
      start();
      host.forward(batch);
    });
    Call unsaved;
    unsaved.save = false;
    same(
        "linear_forward with `saved` null, which must record what it does with it,", start,
        [&] {
          host.quantize_weight(weight);
          host.forward(batch, unsaved);
        },
        is_saved);
    // An evaluation may compute otherwise, but leaves no trace.
    same("linear_forward, an evaluation and linear_forward", start, [&] {
      start();
      Call evaluation;
      evaluation.evaluates = true;
      evaluation.save = false;
      evaluation.record = false;
      host.forward(batch, evaluation);
      host.forward(batch);
    });
    Call overwrite, later;
    overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
    later.flags = OCTAVO_BACKWARD_OVERWRITE;
    later.later = true;
    // From the start: backward as these calls say.
    const auto backward = [&](const std::vector<Call> &calls) {
      return [&, calls] {
        start();
        for (const Call &call : calls) host.backward(batch, call);
      };
    };
    octavo_tensor odd = batch.x.tensor;
    odd.dtype = 0x0611u;
    odd.data = nullptr;
    Call with_odd_x = overwrite;
    with_odd_x.no_x = &odd;
    same("linear_backward with an x that it does not need,", backward({overwrite}),
         backward({with_odd_x}));
    same("linear_backward twice on one saved", backward({overwrite}),
         backward({overwrite, overwrite}));
    same("calls with longer structs and an unknown flag", backward({overwrite}), [&] {
      host.quantize_weight(weight, later);
      host.forward(batch, later);
      host.backward(batch, later);
    });
    // dgrad first, then wgrad alone; dx of the first call must survive the second.
    Call dgrad, without_db, only_db;
    dgrad.want_db = without_db.want_db = only_db.want_dx = false;
    dgrad.flags = only_db.flags = OCTAVO_BACKWARD_SKIP_WEIGHT;
    Call wgrad = overwrite;
    wgrad.want_dx = false;
    same("dgrad and wgrad in two calls", backward({overwrite}), backward({dgrad, wgrad}));
    // Either of the two computes db: the one to which it is passed.
    Call dgrad_and_db = overwrite, wgrad_alone = wgrad;
    dgrad_and_db.flags |= OCTAVO_BACKWARD_SKIP_WEIGHT;
    wgrad_alone.want_db = false;
    same("SKIP_WEIGHT with db, and wgrad without,", backward({overwrite}),
         backward({dgrad_and_db, wgrad_alone}));
    same("SKIP_WEIGHT, which must leave dw alone,", backward({dgrad}), backward({without_db}),
         is_gradient);
    // What is recorded about dy depends on dy, not on the outputs that a call asks for.
    same("db alone, which must record what dgrad does,", backward({dgrad}), backward({only_db}),
         is_no_slot);
    Call none = only_db;
    none.want_db = false;
    same("a call without outputs, which must record what dgrad does,", backward({dgrad}),
         backward({none}), is_no_slot);
    Call only_dw = overwrite;
    only_dw.want_dx = only_dw.want_db = false;
    same("dw alone, which must record what dgrad does,", backward({dgrad}), backward({only_dw}),
         is_no_record);
    // `saved` may be moved, and what was there may go.
    uint8_t *const old = batch.saved;
    same(
        "linear_backward with `saved` moved", backward({overwrite}),
        [&] {
          start();
          std::memcpy(elsewhere, old, saved_bytes);
          std::memset(old, 0x5A, saved_bytes);
          batch.saved = elsewhere;
          host.backward(batch, overwrite);
          batch.saved = old;
        },
        is_saved);
    // Backward takes the weight that quantize_weight cast last.
    const auto change_weight = [&] {
      fill(host.weight(weight), mix(context.seed, 77), 0.25);
      host.write_weight(weight);
      host.quantize_weight(weight);
    };
    same(
        "linear_backward after another weight was cast",
        [&] {
          start();
          change_weight();
          host.forward(batch);
          host.backward(batch, overwrite);
        },
        [&] {
          start();
          change_weight();
          host.backward(batch, overwrite);
        },
        is_no_result_of_backward);
    host.arena().restore(clean);
    if (plan.gradient == OCTAVO_GRADIENT_NONE) {
      Call given = overwrite;
      given.no_dw = &host.dw(weight).tensor;
      same("linear_backward with a dw, which a frozen weight has not,", backward({overwrite}),
           backward({given}));
      host.arena().restore(clean);
      continue;
    }
    backward({overwrite})();
    const std::vector<double> untouched = host.gradient(weight);
    for (const Call &call : {dgrad, dgrad_and_db}) {
      host.backward(batch, call);
      expect(host.gradient(weight) == untouched, "SKIP_WEIGHT changed the weight gradient of ",
             name);
    }
    // A gradient of zeros and accumulation give what OVERWRITE gives; -0 and 0 count as equal.
    host.backward(batch, overwrite);
    const std::vector<double> overwritten = host.gradient(weight);
    const std::vector<double> db = values_of(batch.db);
    host.clear_gradients();
    host.backward(batch);
    expect(host.gradient(weight) == overwritten,
           "dw accumulated from zero differs from OVERWRITE in ", name);
    expect(values_of(batch.db) == db, "db accumulated from zero differs from OVERWRITE in ", name);
    host.arena().restore(clean);
  }
}

namespace {

// Which optimizer it is: a name, and hyperparameters with names of their own, at every call alike.
void check_description(const Session &s) {
  const auto described = [&] {
    auto d = octavo::make<octavo_optimizer_desc>(OCTAVO_KIND_OPTIMIZER_DESC);
    const octavo_status status = s.optimizer()->describe(s.handle(), &d);
    expect(status == OCTAVO_OK, "describe of ", OCTAVO_OPTIMIZER_ID, " answered ",
           status_name(status));
    std::vector<std::string> names = {text_of(d.algorithm)};
    for (const octavo_str &h : d.hyper) names.push_back(text_of(h));
    return names;
  };
  const std::vector<std::string> names = described();
  expect(!names[0].empty(), "describe of ", OCTAVO_OPTIMIZER_ID,
         " names no algorithm; expected \"adamw\", \"adam\" or the name of another one");
  for (size_t i = 1; i < names.size(); ++i)
    expect(names[i].empty() || std::count(names.begin() + 1, names.end(), names[i]) == 1,
           "describe of ", OCTAVO_OPTIMIZER_ID, " names '", names[i], "' twice");
  expect(described() == names, "describe of ", OCTAVO_OPTIMIZER_ID, " gave two answers");
}

}  // namespace

void check_optimizer_skip(const Context &context) {
  need_optimizer(context);
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  check_description(s);
  if (!host.has_optimizer()) throw Skip("no parameter has a slot that optimizer_step uses");
  auto *skip =
      reinterpret_cast<float *>(host.arena().allocate(sizeof(float), Use::kTensor, "skip"));
  host.train_step();
  host.quantize_weights();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
  *skip = 1;
  const Snapshot start = host.arena().snapshot();
  host.optimizer_step(skip);
  expect_equal(host.arena(), start, host.arena().snapshot(), "optimizer_step with skip = 1");
  *skip = 0;
  const Snapshot zero = host.arena().snapshot();
  host.optimizer_step(skip);
  const Snapshot stepped = host.arena().snapshot();
  host.arena().restore(zero);
  host.optimizer_step(nullptr);
  expect_equal(host.arena(), stepped, host.arena().snapshot(),
               "optimizer_step with skip = null instead of a pointer to 0");
  for (uint32_t id = 0; id < s.parameters().size(); ++id) {
    if ((s.parameters()[id].spec.flags & OCTAVO_PARAMETER_FROZEN) != 0) continue;
    bool moved = false;
    for (const Entry &e : host.entries(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id)) {
      const uint64_t begin = host.arena().offset(e.address);
      const bool written = e.access == OCTAVO_ACCESS_UPDATE || e.access == OCTAVO_ACCESS_WRITE;
      moved = moved || (written && !std::equal(e.address, e.address + e.bytes,
                                               zero.begin() + static_cast<int64_t>(begin)));
    }
    const auto all = host.entries(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id);
    expect(moved || all.empty(), "optimizer_step changed nothing of parameter '",
           s.parameters()[id].spec.name, "'");
  }
}

}  // namespace octavo::conformance
