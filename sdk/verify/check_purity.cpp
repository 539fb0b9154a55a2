// purity, purity.order and purity.sessions: a verb depends on its arguments and the options, on
// nothing else.
//
// Hidden state shows when the same steps run again from the same memory: a step number, a "first
// call" flag or a remembered address makes the second run differ from the first.
#include <algorithm>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr int kSteps = 3;

// Nothing counts calls or steps: the first steps again, thousands of them later.
void check_long(const Context &context) {
  const bool is_cpu = context.target.desc.device.type == OCTAVO_DEVICE_CPU;
  const int many = is_cpu ? 4000 : 200;
  Session s(context);
  s.add({{{"few", 3, 16}}, {{"few", "few"}}});
  s.seal();
  Host host(s, context.seed);
  host.add_batch({0, 2, context.seed});
  const Snapshot start = host.arena().snapshot();
  std::vector<Snapshot> expected;
  for (int step = 0; step < many; ++step) {
    host.train_step();
    if (step < kSteps) expected.push_back(host.arena().snapshot());
  }
  host.arena().restore(start);
  for (int step = 0; step < kSteps; ++step) {
    host.train_step();
    expect_equal(host.arena(), expected[static_cast<size_t>(step)], host.arena().snapshot(),
                 text("step ", step, " repeated after ", many, " steps"));
  }
}

}  // namespace

void check_replay(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  const Snapshot start = host.arena().snapshot();
  std::vector<Snapshot> expected;
  for (int step = 0; step < kSteps; ++step) {
    host.train_step();
    expected.push_back(host.arena().snapshot());
  }
  host.arena().restore(start);
  for (int step = 0; step < kSteps; ++step) {
    host.train_step();
    expect_equal(host.arena(), expected[static_cast<size_t>(step)], host.arena().snapshot(),
                 text("step ", step, " repeated from the memory that it started from"));
  }
  // The same session with all memory elsewhere: nothing may remember an address.
  Host elsewhere(s, context.seed);
  elsewhere.add_standard_batches();
  for (int step = 0; step < kSteps; ++step) {
    elsewhere.train_step();
    expect_equal(elsewhere.arena(), expected[static_cast<size_t>(step)],
                 elsewhere.arena().snapshot(), text("step ", step, " with all memory moved"));
  }
  // The same with every address different in one bit: in those within a page, where a kernel may go
  // another way, and in those above, which the two mappings so far happen to share.
  const uint32_t bits = s.context().target.desc.device.type == OCTAVO_DEVICE_CPU ? 20 : 12;
  // Products that are not exact may take another way where addresses are less aligned.
  const bool is_exact = (context.target.desc.caps->flags & OCTAVO_CAPS_EXACT_GEMM) != 0;
  for (uint64_t shift = is_exact ? OCTAVO_ALIGNMENT : 256; shift < uint64_t{1} << bits;
       shift *= 2) {
    Host shifted(s, context.seed, shift);
    shifted.add_standard_batches();
    shifted.train_step();
    expect_equal(shifted.arena(), expected[0], shifted.arena().snapshot(),
                 text("step 0 with every address moved by ", shift, " bytes"));
  }
  check_long(context);
  // A fresh session over the memory of a later step: what changes lies in slots only.
  Standard resumed_run(context);
  Host &resumed = resumed_run.host;
  resumed.arena().restore(expected[0]);
  for (int step = 1; step < kSteps; ++step) {
    resumed.train_step();
    expect_equal(resumed.arena(), expected[static_cast<size_t>(step)], resumed.arena().snapshot(),
                 text("step ", step, " in a new session over the memory of step 0"));
  }
}

void check_order(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  // A weight that several batches meet would show the order of its additions: one batch each.
  std::vector<Batch *> batches;
  for (Batch &batch : host.batches()) {
    const uint32_t weight = s.linears()[batch.spec.linear].weight;
    const bool taken = std::any_of(batches.begin(), batches.end(), [&](const Batch *b) {
      return s.linears()[b->spec.linear].weight == weight;
    });
    if (!taken) batches.push_back(&batch);
  }
  host.train_step();
  host.quantize_weights();
  const Snapshot start = host.arena().snapshot();
  for (Batch *batch : batches) host.forward(*batch);
  for (Batch *batch : batches) host.backward(*batch);
  host.end_step();
  const Snapshot expected = host.arena().snapshot();
  for (uint64_t round = 0; round < 8; ++round) {
    host.arena().restore(start);
    // Random legal order: any forward, or the backward of any batch whose forward is done.
    std::vector<Batch *> waiting = batches, ready;
    for (uint64_t i = 0; !waiting.empty() || !ready.empty(); ++i) {
      const uint64_t random = mix(context.seed + round, i);
      const bool go_forward = ready.empty() || (!waiting.empty() && random % 2 == 0);
      std::vector<Batch *> &from = go_forward ? waiting : ready;
      const auto chosen = from.begin() + static_cast<int64_t>((random >> 8) % from.size());
      Batch *batch = *chosen;
      from.erase(chosen);
      if (go_forward) {
        host.forward(*batch);
        ready.push_back(batch);
      } else {
        host.backward(*batch);
      }
    }
    host.end_step();
    expect_equal(host.arena(), expected, host.arena().snapshot(),
                 text("a step in random order (seed ", context.seed + round, ")"));
  }
}

void check_sessions(const Context &context) {
  const auto make = [&](Session &s) {
    s.add(standard_model());
    s.seal();
  };
  Standard alone(context);
  Host &expected = alone.host;
  for (int step = 0; step < kSteps; ++step) expected.train_step();

  Session a(context), b(context);
  make(a);
  make(b);
  Host first(a, context.seed), second(b, context.seed + 1);
  first.add_standard_batches();
  second.add_standard_batches();
  for (int step = 0; step < kSteps; ++step) {
    for (Host *host : {&first, &second}) host->quantize_weights();
    for (size_t i = 0; i < first.batches().size(); ++i) {
      for (Host *host : {&second, &first}) host->forward(host->batches()[i]);
    }
    for (size_t i = first.batches().size(); i-- > 0;) {
      for (Host *host : {&first, &second}) host->backward(host->batches()[i]);
    }
    for (Host *host : {&second, &first}) host->optimizer_step();
    for (Host *host : {&first, &second}) host->end_step();
    for (Host *host : {&first, &second}) host->clear_gradients();
  }
  expect_equal(first.arena(), expected.arena().snapshot(), first.arena().snapshot(),
               "a session whose calls were interleaved with another's");
}

}  // namespace octavo::conformance
