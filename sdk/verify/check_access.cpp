// access: a verb writes all that it states and nothing else, and looks at nothing else.
//
// Every byte of the arena gets a rule before the verb: keep, read, write, update or scratch, and
// zone outside of every region. The verb runs twice from the same memory, but with other bytes in
// what it must overwrite, in its workspace, and in everything that is not its business; and once
// with other values in what it may only read, which it must leave there.
#include <algorithm>
#include <cstring>
#include <map>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

enum Rule { kZone, kKeep, kRead, kWrite, kUpdate, kScratch };

void flip(uint8_t *at, uint64_t bytes, uint8_t pattern) {
  uint64_t word = 0;
  const uint64_t mask = pattern * (~uint64_t{0} / 0xFF);
  for (; bytes >= sizeof(word); at += sizeof(word), bytes -= sizeof(word)) {
    std::memcpy(&word, at, sizeof(word));
    word ^= mask;
    std::memcpy(at, &word, sizeof(word));
  }
  for (uint64_t i = 0; i < bytes; ++i) at[i] ^= pattern;
}

class Rules {
 public:
  explicit Rules(Host &host) : host_(host), starts_{{0, kZone}, {host.arena().size(), kZone}} {
    for (const Region &r : host.arena().regions()) set(r.begin, r.bytes, kKeep);
  }

  void set(const void *address, uint64_t bytes, Rule rule) {
    if (address != nullptr) set(host_.arena().offset(address), bytes, rule);
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
      if (r.use == Use::kWorkspace) set(r.begin, r.bytes, kScratch);
    }
  }

  void run(const std::string &what, const std::function<void()> &call) {
    Arena &arena = host_.arena();
    const WrappedKernels::Outputs outputs = [this](const uint8_t *address, uint64_t bytes) {
      check_output(address, bytes);
    };
    const auto verb = [&] {
      host_.session().kernels().set_outputs(&outputs);
      call();
      host_.session().kernels().set_outputs(nullptr);
    };
    const Snapshot start = arena.snapshot();
    // With other values in what it may only read: what it writes there may be what is there.
    for_each([&](uint64_t begin, uint64_t bytes, Rule rule) {
      if (rule == kRead) flip(arena.base() + begin, bytes, 0x01);
    });
    const Snapshot other = arena.snapshot();
    verb();
    expect_kept(what, other, arena.snapshot(), [](Rule rule) { return rule == kRead; });
    arena.restore(start);
    const Snapshot first = run_once(what, verb, 0x5A, 0x5A);
    arena.restore(start);
    // Zeros, which a verb that reads what it may not is most likely to take for no value.
    const Snapshot second = run_once(what, verb, 0xA5, 0);
    for_each([&](uint64_t begin, uint64_t bytes, Rule rule) {
      if (rule != kWrite && rule != kUpdate) return;
      const uint64_t at = difference(first, second, begin, bytes);
      if (at == begin + bytes) return;
      throw Failure(text(what, ": ", arena.describe(at),
                         rule == kWrite ? " was not written, or " : " ",
                         "depends on memory that the verb may not read: ", unsigned{first[at]},
                         " and ", unsigned{second[at]}, " in two equal calls"));
    });
    // The pattern over what is not this verb's business goes; what the verb wrote stays.
    for_each([&](uint64_t begin, uint64_t bytes, Rule rule) {
      if (rule == kKeep) std::memcpy(arena.base() + begin, start.data() + begin, bytes);
    });
  }

 private:
  // What lay there before has a rule no longer.
  void set(uint64_t begin, uint64_t bytes, Rule rule) {
    if (bytes == 0) return;
    const uint64_t end = begin + bytes;
    const Rule behind = std::prev(starts_.upper_bound(end))->second;
    starts_.erase(starts_.lower_bound(begin), starts_.lower_bound(end));
    starts_[begin] = rule;
    starts_[end] = behind;
  }

  // body(begin, bytes, rule) for every run of bytes with one rule.
  template <typename Body>
  void for_each(const Body &body) const {
    for (auto run = starts_.begin(), next = std::next(run); next != starts_.end(); run = next++) {
      body(run->first, next->first - run->first, run->second);
    }
  }

  // The first byte there in which the two differ, else the end.
  static uint64_t difference(const Snapshot &a, const Snapshot &b, uint64_t begin, uint64_t bytes) {
    if (std::memcmp(a.data() + begin, b.data() + begin, bytes) == 0) return begin + bytes;
    while (a[begin] == b[begin]) ++begin;
    return begin;
  }

  // An output where the verb may not write is wrong whatever the kernel leaves there.
  void check_output(const uint8_t *address, uint64_t bytes) {
    const Arena &arena = host_.arena();
    if (address < arena.base() || address >= arena.base() + arena.size()) return;
    const uint64_t begin = arena.offset(address), end = begin + bytes;
    for (auto run = std::prev(starts_.upper_bound(begin)); run != starts_.end() && run->first < end;
         ++run) {
      const Rule rule = run->second;
      if (rule != kZone && rule != kKeep && rule != kRead) continue;
      host_.session().kernels().report(text(
          "a kernel has ", arena.describe(std::max(begin, run->first)), " as an output, which the ",
          "verb ", rule == kRead ? "may only read" : "may not touch"));
      return;
    }
  }

  // pattern: flips what is not the verb's business; fill: of what it must overwrite.
  Snapshot run_once(const std::string &what, const std::function<void()> &verb, uint8_t pattern,
                    uint8_t fill) {
    Arena &arena = host_.arena();
    for_each([&](uint64_t begin, uint64_t bytes, Rule rule) {
      if (rule == kWrite || rule == kScratch) std::memset(arena.base() + begin, fill, bytes);
      if (rule == kKeep) flip(arena.base() + begin, bytes, pattern);
    });
    const Snapshot before = arena.snapshot();
    verb();
    Snapshot after = arena.snapshot();
    expect_kept(what, before, after,
                [](Rule rule) { return rule == kZone || rule == kKeep || rule == kRead; });
    return after;
  }

  void expect_kept(const std::string &what, const Snapshot &before, const Snapshot &after,
                   bool (*is_meant)(Rule)) const {
    for_each([&](uint64_t begin, uint64_t bytes, Rule rule) {
      if (!is_meant(rule)) return;
      const uint64_t at = difference(before, after, begin, bytes);
      if (at == begin + bytes) return;
      throw Failure(text(what, " changed ", host_.arena().describe(at), ", which it ",
                         rule == kRead ? "may only read" : "may not touch", ": from ",
                         unsigned{before[at]}, " to ", unsigned{after[at]}));
    });
  }

  Host &host_;
  std::map<uint64_t, Rule> starts_;  // where a run of bytes with one rule begins; the last: the end
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
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
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
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
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
