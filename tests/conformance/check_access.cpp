// access: a verb writes all that it states and nothing else, and looks at nothing else.
//
// Every byte of the arena gets a rule before the verb: keep, read, write, update or scratch. The
// verb runs twice from the same memory, but with other bytes in what it must overwrite, in its
// workspace, and in everything that is not its business.
#include <vector>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

enum Rule : uint8_t { kKeep, kRead, kWrite, kUpdate, kScratch };

class Rules {
 public:
  explicit Rules(Host &host) : host_(host), rules_(host.arena().size(), kKeep) {}

  void set(const void *address, uint64_t bytes, Rule rule) {
    if (bytes == 0 || address == nullptr) return;
    const uint64_t begin = host_.arena().offset(address);
    for (uint64_t at = begin; at < begin + bytes; ++at) rules_[at] = rule;
  }
  void set(const Matrix &m, Rule rule) {
    const uint64_t width = static_cast<uint64_t>(m.cols()) * element_bytes(m.tensor.dtype);
    for (int64_t row = 0; row < m.rows(); ++row) set(m.element(row, 0), width, rule);
  }
  void set_list(uint32_t verb, uint32_t owner_kind, uint32_t owner) {
    for (const Entry &e : host_.entries(verb, owner_kind, owner)) {
      if (e.access == OCTAVO_ACCESS_NONE) continue;
      const bool reads = e.access == OCTAVO_ACCESS_READ;
      set(e.address, e.bytes, reads ? kRead : e.access == OCTAVO_ACCESS_WRITE ? kWrite : kUpdate);
    }
  }
  // Every workspace of the model may be scribbled on between calls.
  void set_workspaces() {
    for (const Region &r : host_.arena().regions()) {
      if (r.use == Use::kWorkspace) set(host_.arena().base() + r.begin, r.bytes, kScratch);
    }
  }

  void run(const std::string &what, const std::function<void()> &verb) {
    Arena &arena = host_.arena();
    const Snapshot start = arena.snapshot();
    const Snapshot first = run_once(what, verb, 0x5A);
    arena.restore(start);
    const Snapshot second = run_once(what, verb, 0xA5);
    for (uint64_t at = 0; at < rules_.size(); ++at) {
      if (rules_[at] != kWrite && rules_[at] != kUpdate) continue;
      if (first[at] == second[at]) continue;
      throw Failure(text(what, ": ", arena.describe(at),
                         rules_[at] == kWrite ? " was not written, or " : " ",
                         "depends on memory that the verb may not read: ", unsigned{first[at]},
                         " and ", unsigned{second[at]}, " in two equal calls"));
    }
    // The pattern over what is not this verb's business goes; what the verb wrote stays.
    for (uint64_t at = 0; at < rules_.size(); ++at) {
      if (rules_[at] == kKeep) arena.base()[at] = start[at];
    }
  }

 private:
  Snapshot run_once(const std::string &what, const std::function<void()> &verb, uint8_t pattern) {
    Arena &arena = host_.arena();
    for (const Region &region : arena.regions()) {
      for (uint64_t at = region.begin; at < region.begin + region.bytes; ++at) {
        if (rules_[at] == kWrite || rules_[at] == kScratch) arena.base()[at] = pattern;
        if (rules_[at] == kKeep) arena.base()[at] ^= pattern;
      }
    }
    const Snapshot before = arena.snapshot();
    verb();
    Snapshot after = arena.snapshot();
    for (uint64_t at = 0; at < rules_.size(); ++at) {
      if (rules_[at] != kKeep && rules_[at] != kRead) continue;
      if (before[at] == after[at]) continue;
      throw Failure(text(what, " changed ", arena.describe(at), ", which it ",
                         rules_[at] == kRead ? "may only read" : "may not touch", ": from ",
                         unsigned{before[at]}, " to ", unsigned{after[at]}));
    }
    return after;
  }

  Host &host_;
  std::vector<uint8_t> rules_;
};

void check_forward(Host &host, Batch &batch, const Call &call) {
  const uint32_t linear = batch.spec.linear;
  Rules rules(host);
  rules.set_workspaces();
  rules.set_list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear);
  rules.set(batch.x, kRead);
  rules.set(batch.bias, kRead);
  rules.set(batch.y, kWrite);
  if (call.save) {
    const octavo_extent &extent = host.session().linears()[linear].plan.saved;
    rules.set(batch.saved, extent_bytes(extent, batch.spec.rows), kWrite);
  }
  rules.run(text("linear_forward of ", batch.name), [&] { host.forward(batch, call); });
}

void check_backward(Host &host, Batch &batch, const Call &call) {
  const uint32_t linear = batch.spec.linear;
  const octavo_linear_plan &plan = host.session().linears()[linear].plan;
  const bool overwrites = (call.flags & OCTAVO_BACKWARD_OVERWRITE) != 0;
  const bool wgrad = (call.flags & OCTAVO_BACKWARD_SKIP_WEIGHT) == 0;
  Rules rules(host);
  rules.set_workspaces();
  rules.set_list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear);
  rules.set(batch.dy, kRead);
  if ((plan.flags & OCTAVO_LINEAR_NEEDS_X) != 0) rules.set(batch.x, kRead);
  rules.set(batch.saved, extent_bytes(plan.saved, batch.spec.rows), kRead);
  if (call.want_dx) rules.set(batch.dx, kWrite);
  if (call.want_db) rules.set(batch.db, overwrites ? kWrite : kUpdate);
  if (plan.gradient == OCTAVO_GRADIENT_TENSOR && wgrad) {
    rules.set(batch.dw, overwrites ? kWrite : kUpdate);
  }
  rules.run(text("linear_backward of ", batch.name, " with flags ", call.flags),
            [&] { host.backward(batch, call); });
}

}  // namespace

void check_access(const Context &context) {
  Session s(context);
  s.add(standard_model());
  s.seal();
  Host host(s, context.seed);
  host.add_standard_batches();
  host.train_step();
  for (uint32_t id = 0; id < s.parameters().size(); ++id) {
    Rules rules(host);
    rules.set_workspaces();
    rules.set_list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, id);
    rules.run(text("quantize_weight of '", s.parameters()[id].spec.name, "'"),
              [&] { host.quantize_weight(id); });
  }
  for (Batch &batch : host.batches()) {
    Call call;
    call.save = false;
    check_forward(host, batch, call);
    call.save = true;
    check_forward(host, batch, call);
    check_backward(host, batch, call);
    call.flags = OCTAVO_BACKWARD_OVERWRITE;
    check_backward(host, batch, call);
    call.flags = OCTAVO_BACKWARD_SKIP_WEIGHT;
    call.want_db = false;
    check_backward(host, batch, call);
    call.flags = 0;
    call.want_dx = false;
    check_backward(host, batch, call);
  }
  Rules rules(host);
  rules.set_workspaces();
  rules.set_list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
  rules.run("end_step", [&] { host.end_step(); });
}

void check_access_optimizer(const Context &context) {
  need_optimizer(context);
  Session s(context);
  s.add(standard_model());
  s.seal();
  Host host(s, context.seed);
  host.add_standard_batches();
  if (!host.has_optimizer()) throw Skip("no parameter has a slot that optimizer_step uses");
  host.train_step();
  host.quantize_weights();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
  Rules rules(host);
  rules.set_workspaces();
  for (uint32_t id = 0; id < s.parameters().size(); ++id) {
    if ((s.parameters()[id].spec.flags & OCTAVO_PARAMETER_FROZEN) != 0) continue;
    rules.set_list(OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id);
  }
  rules.set(host.hyper(), OCTAVO_HYPER_COUNT * sizeof(float), kRead);
  rules.set(host.nonfinite(), host.nonfinite() == nullptr ? 0 : sizeof(float), kRead);
  rules.run("optimizer_step", [&] { host.optimizer_step(); });
}

}  // namespace octavo::conformance
