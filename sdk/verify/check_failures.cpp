// failures: a verb passes on the failure of each of its calls of kernels, and works afterwards.
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// From equal memory: once whole, once for each call of kernels that fails, and whole again.
void check_verb(Host &host, const std::string &what,
                const std::function<void(const Call &)> &verb) {
  WrappedKernels &kernels = host.session().kernels();
  const Snapshot start = host.arena().snapshot();
  const uint64_t before = kernels.calls();
  verb({});
  const auto calls = static_cast<int64_t>(kernels.calls() - before);
  const Snapshot whole = host.arena().snapshot();
  Call failing;
  failing.expected = OCTAVO_NO_RESOURCE;
  for (int64_t n = 0; n < calls; ++n) {
    host.arena().restore(start);
    kernels.fail_call(n);
    host.session().take_reports();
    try {
      verb(failing);
      const uint32_t reports = host.session().take_reports();
      expect(reports == 0, what, " sent ", reports,
             " diagnostics; expected none: the kernels that failed have reported it");
    } catch (const Failure &failure) {
      throw Failure(text("call ", n + 1, " of ", calls, " of kernels failed: ", failure.what()));
    }
  }
  host.arena().restore(start);
  verb({});
  expect_equal(host.arena(), whole, host.arena().snapshot(),
               text(what, ", from equal memory, after kernels failed in it,"));
}

// A plan needs the sizes that it asks for.
void check_plans(Session &s) {
  WrappedKernels &kernels = s.kernels();
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    octavo_linear_plan whole{}, plan{};
    const auto make = [&](octavo_linear_plan &p) {
      p.size = sizeof p;
      p.kind = OCTAVO_KIND_LINEAR_PLAN;
      return s.backend().linear_plan(s.handle(), id, &p);
    };
    const uint64_t before = kernels.sizes();
    make(whole);
    const auto sizes = static_cast<int64_t>(kernels.sizes() - before);
    for (int64_t n = 0; n < sizes; ++n) {
      kernels.fail_size(n);
      s.take_reports();
      const octavo_status status = make(plan);
      const uint32_t reports = s.take_reports();
      expect(reports == 0, "linear_plan of '", s.linears()[id].name, "' sent ", reports,
             " diagnostics; expected none: the kernels that failed have reported it");
      const bool is_whole = status == OCTAVO_OK && std::memcmp(&plan, &whole, sizeof plan) == 0;
      expect(status == OCTAVO_NO_RESOURCE || is_whole, "linear_plan of '", s.linears()[id].name,
             "' answered ", status_name(status), " where workspace_bytes of the kernels answered ",
             "OCTAVO_NO_RESOURCE to question ", n + 1, " of ", sizes,
             "; expected that status, or the plan without the failure");
    }
    kernels.fail_size(-1);
  }
}

}  // namespace

void check_failures(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  for (uint32_t id = 0; id < s.parameters().size(); ++id)
    check_verb(host, text("quantize_weight of '", s.parameters()[id].spec.name, "'"),
               [&](const Call &call) { host.quantize_weight(id, call); });
  for (Batch &batch : host.batches()) {
    check_verb(host, text("linear_forward of ", batch.name),
               [&](const Call &call) { host.forward(batch, call); });
    check_verb(host, text("linear_backward of ", batch.name),
               [&](const Call &call) { host.backward(batch, call); });
  }
  check_plans(s);
  check_verb(host, "end_step", [&](const Call &call) { host.end_step(call); });
}

}  // namespace octavo::conformance
