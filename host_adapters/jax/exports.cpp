// The functions that the Python package calls, one thread at a time per run.
#include <algorithm>
#include <exception>

#include "entry.h"
#include "octavo/draft/reduction.h"

namespace octavo::jax {
namespace {

// What a function has to say, for octavo_jax_take_diagnostics.
octavo_status tell(const Error &e) {
  const std::string what = e.what();
  auto d = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  d.severity = OCTAVO_SEVERITY_ERROR;
  d.domain = OCTAVO_STR("octavo.jax");
  d.text = borrow(what);
  host().get()->diagnose(host().get()->ctx, &d);
  return e.status();
}

// Calls `use` with a run; the status of what it throws.
template <typename Use>
octavo_status told(int64_t number, Use use) {
  try {
    with_entry(number, use);
    return OCTAVO_OK;
  } catch (const Error &e) {
    return tell(e);
  } catch (const std::exception &) {  // none may cross C
    return OCTAVO_NO_RESOURCE;
  }
}

}  // namespace
}  // namespace octavo::jax

OCTAVO_EXPORT const octavo_host *octavo_jax_host(void) {
  return octavo::jax::host().get();
}

// The diagnostics since the last call, as a string that the next call on this thread overwrites.
OCTAVO_EXPORT const char *octavo_jax_take_diagnostics(void) {
  thread_local std::string all;
  all.clear();
  for (const octavo::Diagnostic &d : octavo::jax::host().take())
    if (d.severity >= OCTAVO_SEVERITY_WARNING)
      all += (all.empty() ? "" : "\n") + d.domain + ": " + d.text;
  return all.c_str();
}

// Returns the run's number. The run must stay open until octavo_jax_release.
OCTAVO_EXPORT int64_t octavo_jax_register(const octavo::jax::Registration *given) {
  return octavo::jax::enter(*given);
}

// Waits for calls in flight.
OCTAVO_EXPORT void octavo_jax_release(int64_t number) {
  octavo::jax::leave(number);
}

// The workspace of the optimizer's verbs for `count` parameters from `first` on.
OCTAVO_EXPORT octavo_status octavo_jax_optimizer_bytes(int64_t number, uint32_t first,
                                                       uint32_t count, uint64_t *bytes) {
  return octavo::jax::told(number, [&](const octavo::jax::Entry &entry) {
    *bytes = entry.optimizer_bytes(first, count);
  });
}

struct octavo_jax_plan_sizes {
  uint64_t stage_count;
  uint64_t buffer_bytes;  // of send and of recv
  uint64_t state_bytes;
};

// The reduction over `world` ranks of all gradients that the backend keeps. The first `capacity`
// stages are copied; sizes->stage_count is their number.
OCTAVO_EXPORT octavo_status octavo_jax_plan(int64_t number, uint32_t world,
                                            octavo_gradient_stage *stages, uint64_t capacity,
                                            octavo_jax_plan_sizes *sizes) {
  return octavo::jax::told(number, [&](const octavo::jax::Entry &entry) {
    if (entry.gradients == nullptr)
      throw octavo::Error("octavo.gradients/1: the backend has none", OCTAVO_UNSUPPORTED, {});
    std::vector<octavo_gradient_stage> found;
    auto plan = octavo::make<octavo_gradient_plan>(OCTAVO_KIND_GRADIENT_PLAN);
    plan.world = world;
    plan.parameters = entry.reduced.data();
    plan.count = entry.reduced.size();
    plan.ctx = &found;
    plan.stage = [](void *ctx, const octavo_gradient_stage *given) -> octavo_status {
      try {
        static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(*given);
        return OCTAVO_OK;
      } catch (const std::exception &) {  // none may cross the plugin
        return OCTAVO_NO_RESOURCE;
      }
    };
    octavo::Host &host = octavo::jax::host();
    host.require(octavo_reduction_bytes(entry.run, plan.parameters, plan.count, world,
                                        &sizes->buffer_bytes, &sizes->state_bytes),
                 "octavo_reduction_bytes");
    host.require(entry.gradients->plan_reduction(entry.session, &plan), "plan_reduction");
    sizes->stage_count = found.size();
    std::copy_n(found.begin(), std::min<uint64_t>(capacity, found.size()), stages);
  });
}
