// Registration is done by the Python package through the C functions at the end of this file.
#include "registry.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "error.h"
#include "host.h"

// What octavo_torch_register takes, as ops.Registration of the Python package. It is copied; run,
// slots and flags must live until octavo_torch_release.
struct octavo_torch_registration {
  octavo_run *run;
  void *const *slots;  // by slot id; null: native
  const octavo::ops::ParameterShape *parameters;
  const octavo::ops::LinearShape *linears;
  octavo::ops::SharedFlags flags;
  octavo::ops::Callbacks callbacks;
  uint32_t parameter_count, linear_count;
  octavo_str device;  // "cpu", "cuda:1"
};

namespace octavo::ops {
namespace {

constexpr size_t kVerbs = 6;

std::shared_mutex mutex;
std::unordered_map<int64_t, std::shared_ptr<Entry>> entries;

// Appends one use to a list.
void append(const octavo_torch_registration &given, const octavo_slot_use &use, size_t verb,
            List *list) {
  const octavo_slot *slot = octavo_get_slot(given.run, use.slot);
  const uint8_t access = slot->access[verb];
  const auto at = static_cast<uint32_t>(list->slots.size());
  list->slots.push_back(nullptr);
  if (access == OCTAVO_ACCESS_NONE) return;
  if (slot->flags & OCTAVO_SLOT_NATIVE) {
    list->natives.push_back(
        {at, slot->role, slot->dtype, slot->rows * slot->cols, access != OCTAVO_ACCESS_READ});
    return;
  }
  const bool is_range = slot->labels != nullptr && use.count > 0;
  const size_t offset =
      is_range ? static_cast<size_t>(use.first) * OCTAVO_DTYPE_BITS(slot->dtype) / 8 : 0;
  list->slots[at] = static_cast<char *>(given.slots[use.slot]) + offset;
  if (access == OCTAVO_ACCESS_ACCUMULATE) list->accumulators.push_back(at);
}

ObjectLists lists(const octavo_torch_registration &given, uint32_t owner_kind, uint32_t owner) {
  ObjectLists out;
  const uint32_t count = octavo_use_count(given.run, owner_kind, owner);
  for (size_t verb = 0; verb < kVerbs; ++verb)
    for (uint32_t i = 0; i < count; ++i)
      append(given, *octavo_get_use(given.run, owner_kind, owner, i), verb, &out.verbs[verb]);
  return out;
}

std::string text(octavo_str s) {
  return {s.data, s.size};
}

void fill(const octavo_torch_registration &given, Entry *e) {
  e->run = given.run;
  e->backend = octavo_backend_of(given.run);
  e->optimizer = octavo_optimizer_of(given.run);
  e->gradients = octavo_gradients_of(given.run);
  e->fused = octavo_fused_of(given.run);
  e->session = octavo_session_of(given.run);
  const std::string device = text(given.device);
  uint32_t type = 0;
  TORCH_ERROR_CODE_CHECK(torch_parse_device_string(device.c_str(), &type, &e->device.index));
  e->device.type = static_cast<int32_t>(type);
  e->device.index = std::max(e->device.index, 0);
  e->session_lists = lists(given, OCTAVO_OWNER_SESSION, 0);
  for (uint32_t p = 0; p < given.parameter_count; ++p) {
    e->parameters.push_back(lists(given, OCTAVO_OWNER_PARAMETER, p));
    e->parameter_names.push_back(text(given.parameters[p].name));
    e->transposed.push_back(given.parameters[p].transposed != 0);
  }
  e->weight_workspace.assign(given.parameter_count, 0);
  e->forwards = std::make_unique<std::atomic<uint64_t>[]>(given.linear_count);
  for (uint32_t l = 0; l < given.linear_count; ++l) {
    e->linears.push_back(lists(given, OCTAVO_OWNER_LINEAR, l));
    e->linear_names.push_back(text(given.linears[l].name));
    e->shapes.push_back(given.linears[l]);
    const octavo_linear_plan *plan = octavo_get_plan(e->run, l);
    e->plans.push_back(*plan);
    octavo_extent extent = {};
    if (e->fused == nullptr || e->fused->workspace(e->session, l, &extent) != OCTAVO_OK)
      extent.row_multiple = 0;
    e->fused_workspace.push_back(extent);
    uint64_t &most = e->weight_workspace[given.linears[l].parameter];
    most = std::max(most, plan->weight_workspace);
  }
  take_diagnostics();  // a backend without fused linears reports that; it is no error here
  e->coupling.open(given.parameter_count, given.flags, given.callbacks);
}

// FNV-1a over everything that a compiled graph takes for granted about the run.
uint64_t layout_hash(const Entry &e) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&hash](const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      hash ^= static_cast<const unsigned char *>(data)[i];
      hash *= 1099511628211u;
    }
  };
  const octavo_str backend = octavo_backend_id_of(e.run);
  add(backend.data, backend.size);
  const uint32_t slots = octavo_slot_count(e.run);
  for (uint32_t i = 0; i < slots; ++i) {
    const octavo_slot *slot = octavo_get_slot(e.run, i);
    for (const int64_t value : {int64_t{slot->dtype}, slot->rows, slot->cols}) add(&value, 8);
    add(slot->access, sizeof slot->access);
  }
  for (const LinearShape &s : e.shapes)
    for (const int64_t value : {s.n, s.k, int64_t{s.gradient_dtype}, int64_t{s.parameter}})
      add(&value, 8);
  for (const octavo_linear_plan &p : e.plans) add(&p.saved, sizeof p.saved);
  return hash;
}

}  // namespace

const Native *List::native(uint32_t role) const {
  for (const Native &n : natives)
    if (n.role == role) return &n;
  return nullptr;
}

std::string Entry::name(uint32_t owner_kind, int64_t owner) const {
  const bool is_linear = owner_kind == OCTAVO_OWNER_LINEAR;
  const std::vector<std::string> &names = is_linear ? linear_names : parameter_names;
  const std::string kind = is_linear ? "linear " : "parameter ";
  if (owner < 0 || static_cast<size_t>(owner) >= names.size()) return kind + std::to_string(owner);
  return kind + names[static_cast<size_t>(owner)];
}

std::shared_ptr<const Entry> find(int64_t number) {
  {
    std::shared_lock lock(mutex);
    const auto found = entries.find(number);
    if (found != entries.end()) return found->second;
  }
  raise(OCTAVO_WRONG_STATE,
        "run " + std::to_string(number) +
            ": expected the number of an open run, found none; the model was closed, or this graph "
            "was compiled for another one: call octavo.prepare and torch.compile again");
}

const List &list_of(const Entry &e, uint32_t verb, uint32_t owner_kind, int64_t owner) {
  if (owner_kind == OCTAVO_OWNER_SESSION) return e.session_lists.verbs[verb];
  const std::vector<ObjectLists> &objects =
      owner_kind == OCTAVO_OWNER_LINEAR ? e.linears : e.parameters;
  if (owner < 0 || static_cast<size_t>(owner) >= objects.size())
    raise(OCTAVO_INVALID, e.name(owner_kind, owner) + ": expected a number from 0 to " +
                              std::to_string(static_cast<int64_t>(objects.size()) - 1));
  return objects[static_cast<size_t>(owner)].verbs[verb];
}

}  // namespace octavo::ops

using octavo::ops::Entry;

// The functions below are called by the Python package, one thread at a time per run.

OCTAVO_EXPORT const octavo_host *octavo_torch_host(void) {
  return octavo::ops::host();
}

// Diagnostics of this thread, as a string that the next call on this thread overwrites.
OCTAVO_EXPORT const char *octavo_torch_take_diagnostics(void) {
  thread_local std::string text;
  text = octavo::ops::take_diagnostics();
  return text.c_str();
}

// Adds to the diagnostics of this thread: what a function of octavo::ops::Callbacks has to say.
OCTAVO_EXPORT void octavo_torch_diagnose(const char *text) {
  octavo::ops::diagnose(text);
}

// Returns the run's number, never 0.
OCTAVO_EXPORT int64_t octavo_torch_register(const octavo_torch_registration *given) {
  auto entry = std::make_shared<Entry>();
  octavo::ops::fill(*given, entry.get());
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
  std::unique_lock lock(octavo::ops::mutex);
  octavo::ops::entries.erase(number);
}

// How often a verb (OCTAVO_VERB_...) ran through ops of this run; 0 for an unknown number.
OCTAVO_EXPORT uint64_t octavo_torch_calls(int64_t number, uint32_t verb) {
  std::shared_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end() || verb >= octavo::ops::kVerbs) return 0;
  return found->second->calls[verb].load(std::memory_order_relaxed);
}

// The same for the forward of one linear.
OCTAVO_EXPORT uint64_t octavo_torch_forwards(int64_t number, uint32_t linear) {
  std::shared_lock lock(octavo::ops::mutex);
  const auto found = octavo::ops::entries.find(number);
  if (found == octavo::ops::entries.end() || linear >= found->second->shapes.size()) return 0;
  return found->second->forwards[linear].load(std::memory_order_relaxed);
}
