// Registration is done by the Python package through the C functions at the end of this file.
#include "registry.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "error.h"
#include "host_adapters/torch/core/driver.h"
#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/hash.h"
#include "host_adapters/torch/core/host.h"
#include "tensors.h"

namespace octavo::ops {
namespace {

using core::Entry;
using core::LinearShape;

std::shared_mutex mutex;
std::unordered_map<int64_t, std::shared_ptr<Entry>> entries;

// A hash of everything that a compiled graph takes for granted about the run.
uint64_t layout_hash(const Entry &e) {
  core::Hash hash;
  const auto add = [&hash](const void *data, size_t bytes) { hash.add(data, bytes); };
  const octavo_str backend = octavo_run_backend_id(e.run);
  add(backend.data, backend.size);
  const uint32_t slots = octavo_run_slot_count(e.run);
  for (uint32_t i = 0; i < slots; ++i) {
    const octavo_slot *slot = octavo_run_slot(e.run, i);
    for (const int64_t value : {int64_t{slot->dtype}, slot->rows, slot->cols}) add(&value, 8);
    add(slot->access, sizeof slot->access);
  }
  for (const LinearShape &s : e.shapes)
    for (const int64_t value : {s.n, s.k, int64_t{s.gradient_dtype}, int64_t{s.parameter}})
      add(&value, 8);
  for (const octavo_linear_plan &p : e.plans) add(&p.saved, sizeof p.saved);
  return hash.value();
}

std::string no_run(int64_t number) {
  return "run " + std::to_string(number) +
         ": expected the number of an open run, found none; the model was closed, or this graph "
         "was "
         "compiled for another one: call octavo.prepare and torch.compile again";
}

std::shared_ptr<Entry> entry_of(int64_t number) {
  {
    std::shared_lock lock(mutex);
    const auto found = entries.find(number);
    if (found != entries.end()) return found->second;
  }
  core::raise(OCTAVO_WRONG_STATE, no_run(number));
}

}  // namespace

std::shared_ptr<const Entry> find(int64_t number) {
  return entry_of(number);
}

namespace {

// The tensors of these slots of a new run. No op of the run may be in flight.
void hold_slots(int64_t number, const Ids &slots, const Tensors &tensors) {
  const std::shared_ptr<Entry> entry = entry_of(number);
  if (slots.size() != tensors.size())
    core::raise(OCTAVO_INVALID, "hold_slots: expected a tensor for each slot");
  for (size_t i = 0; i < slots.size(); ++i)
    entry->hold(static_cast<uint32_t>(slots[i]), view(tensors[i]));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def("hold_slots(int run, int[] slots, Tensor[] tensors) -> ()");
}

// A run without slots gives no tensor from which torch could take a device.
STABLE_TORCH_LIBRARY_IMPL(octavo, CompositeExplicitAutograd, m) {
  m.impl("hold_slots", TORCH_BOX(&hold_slots));
}

}  // namespace octavo::ops

using octavo::core::Entry;

// The functions below are called by the Python package, one thread at a time per run.

OCTAVO_EXPORT const octavo_host *octavo_torch_host(void) {
  return octavo::core::host();
}

// Diagnostics of this thread, as a string that the next call on this thread overwrites.
OCTAVO_EXPORT const char *octavo_torch_take_diagnostics(void) {
  thread_local std::string text;
  text = octavo::ops::take_text();
  return text.c_str();
}

// Adds to the diagnostics of this thread: what a function of octavo::core::Callbacks has to say.
OCTAVO_EXPORT void octavo_torch_diagnose(const char *text) {
  octavo::core::diagnose(text);
}

// Returns the run's number. 0: octavo_torch_take_diagnostics has the reason.
OCTAVO_EXPORT int64_t octavo_torch_register(const octavo::core::Registration *given) {
  std::shared_ptr<Entry> entry;
  try {
    entry = octavo::core::make_entry(*given);
  } catch (const std::exception &e) {  // none may cross C
    octavo::core::diagnose(e.what());
    return 0;
  }
  // 40 bits say which model, 22 which of this process's runs of it; positive as int64.
  const uint64_t hash = octavo::ops::layout_hash(*entry);
  std::unique_lock lock(octavo::ops::mutex);
  for (int64_t copy = 0;; ++copy) {
    const int64_t number = static_cast<int64_t>((hash >> 24) << 22) + copy;
    const int64_t positive = number & INT64_MAX;
    if (positive == 0 || octavo::ops::entries.contains(positive)) continue;
    octavo::ops::entries.emplace(positive, std::move(entry));
    return positive;
  }
}

OCTAVO_EXPORT void octavo_torch_release(int64_t number) {
  std::shared_ptr<Entry> entry;  // goes without the lock: torch may want the interpreter for that
  std::unique_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end()) return;
  entry = std::move(found->second);
  octavo::ops::entries.erase(found);
  lock.unlock();
}

// Whether a recording forward of a parameter's weight at `data`, of this version
// (Coupling::settle), would be a boundary: 1 or 0.
OCTAVO_EXPORT int32_t octavo_torch_is_due(int64_t number, uint32_t parameter, const void *data,
                                          int64_t version) {
  std::shared_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end() || parameter >= found->second->parameters.size())
    return 0;
  return found->second->coupling.is_due(parameter, data, version) ? 1 : 0;
}

// How often a verb (OCTAVO_VERB_...) ran through ops of this run; 0 for an unknown number.
OCTAVO_EXPORT uint64_t octavo_torch_calls(int64_t number, uint32_t verb) {
  std::shared_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end() || verb >= octavo::core::kVerbs) return 0;
  return found->second->calls[verb].load(std::memory_order_relaxed);
}

// The same for the forward of one linear.
OCTAVO_EXPORT uint64_t octavo_torch_forwards(int64_t number, uint32_t linear) {
  std::shared_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end() || linear >= found->second->shapes.size()) return 0;
  return found->second->forwards[linear].load(std::memory_order_relaxed);
}

// The UUID of the GPU of a registered run, 16 bytes; 0: the driver says none, as on the CPU.
OCTAVO_EXPORT int32_t octavo_torch_gpu(int64_t number, char *uuid) {
  std::shared_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end()) return 0;
  const std::string gpu = octavo::core::gpu_of(found->second->device);
  std::copy(gpu.begin(), gpu.end(), uuid);
  return static_cast<int32_t>(gpu.size());
}
