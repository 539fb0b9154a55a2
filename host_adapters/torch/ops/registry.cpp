// Registration is done by the Python package through the C functions at the end of this file.
#include "registry.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "error.h"
#include "host.h"

namespace octavo::ops {
namespace {

constexpr size_t kVerbs = 6;

std::shared_mutex mutex;
std::unordered_map<int64_t, std::shared_ptr<Entry>> entries;

Position position(const octavo_run *run, const octavo_slot_use &use, size_t verb) {
  const octavo_slot *slot = octavo_get_slot(run, use.slot);
  const int64_t whole = slot->rows * slot->cols;
  const bool is_range = slot->labels != nullptr && use.count > 0;
  return {slot->access[verb], use.slot, slot->dtype, is_range ? slot->rows * use.count : whole};
}

ObjectLists lists(const octavo_run *run, uint32_t owner_kind, uint32_t owner) {
  ObjectLists out;
  const uint32_t count = octavo_use_count(run, owner_kind, owner);
  for (size_t verb = 0; verb < kVerbs; ++verb)
    for (uint32_t i = 0; i < count; ++i)
      out.verbs[verb].push_back(position(run, *octavo_get_use(run, owner_kind, owner, i), verb));
  return out;
}

void refresh(Entry &e, uint32_t parameters, uint32_t linears) {
  e.session_lists = lists(e.run, OCTAVO_OWNER_SESSION, 0);
  e.parameters.clear();
  for (uint32_t p = 0; p < parameters; ++p)
    e.parameters.push_back(lists(e.run, OCTAVO_OWNER_PARAMETER, p));
  e.linears.clear();
  e.plans.clear();
  e.fused_workspace.clear();
  e.weight_workspace.assign(parameters, 0);
  e.shapes.resize(linears);
  for (uint32_t l = 0; l < linears; ++l) {
    e.linears.push_back(lists(e.run, OCTAVO_OWNER_LINEAR, l));
    const octavo_linear_plan *plan = octavo_get_plan(e.run, l);
    e.plans.push_back(*plan);
    octavo_extent extent = {};
    if (e.fused == nullptr || e.fused->workspace(e.session, l, &extent) != OCTAVO_OK)
      extent.row_multiple = 0;
    e.fused_workspace.push_back(extent);
    const uint32_t p = e.shapes[l].parameter;
    if (p < parameters)
      e.weight_workspace[p] = std::max(e.weight_workspace[p], plan->weight_workspace);
  }
  take_diagnostics();  // a backend without fused linears reports that; it is no error here
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
  const auto add_lists = [&add](const ObjectLists &object) {
    for (const auto &verb : object.verbs)
      for (const Position &p : verb) {
        add(&p.access, sizeof p.access);
        add(&p.dtype, sizeof p.dtype);
        add(&p.elements, sizeof p.elements);
      }
  };
  const octavo_str backend = octavo_backend_id_of(e.run);
  add(backend.data, backend.size);
  add_lists(e.session_lists);
  for (const ObjectLists &p : e.parameters) add_lists(p);
  for (const ObjectLists &l : e.linears) add_lists(l);
  for (const LinearShape &s : e.shapes) add(&s, sizeof s);
  for (const octavo_linear_plan &p : e.plans) add(&p.saved, sizeof p.saved);
  return hash;
}

}  // namespace

std::shared_ptr<const Entry> find(int64_t number) {
  {
    std::shared_lock lock(mutex);
    const auto found = entries.find(number);
    if (found != entries.end()) return found->second;
  }
  raise(
      OCTAVO_WRONG_STATE,
      "run " + std::to_string(number) +
          ": expected the number of an open run, found none; the model was closed, or this graph "
          "was compiled for another one: call octavo.prepare and torch.compile again. The look-up");
}

const std::vector<Position> &positions(const Entry &e, uint32_t verb, uint32_t owner_kind,
                                       int64_t owner) {
  const auto of = [&](const std::vector<ObjectLists> &objects,
                      const char *what) -> const std::vector<Position> & {
    if (owner < 0 || static_cast<size_t>(owner) >= objects.size())
      raise(OCTAVO_INVALID, std::string(what) + " " + std::to_string(owner) + ": expected 0 to " +
                                std::to_string(static_cast<int64_t>(objects.size()) - 1) +
                                ". The look-up");
    return objects[static_cast<size_t>(owner)].verbs[verb];
  };
  if (owner_kind == OCTAVO_OWNER_PARAMETER) return of(e.parameters, "parameter");
  if (owner_kind == OCTAVO_OWNER_LINEAR) return of(e.linears, "linear");
  return e.session_lists.verbs[verb];
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

// Shapes of the linears [linears] are copied; graph_gradients [parameters] is Entry's. Returns the
// run's number, never 0. Run and flags must live until octavo_torch_release.
OCTAVO_EXPORT int64_t octavo_torch_register(octavo_run *run, uint32_t parameters, uint32_t linears,
                                            const octavo::ops::LinearShape *shapes,
                                            uint8_t *graph_gradients) {
  auto entry = std::make_shared<Entry>();
  entry->run = run;
  entry->backend = octavo_backend_of(run);
  entry->optimizer = octavo_optimizer_of(run);
  entry->gradients = octavo_gradients_of(run);
  entry->fused = octavo_fused_of(run);
  entry->session = octavo_session_of(run);
  entry->graph_gradients = graph_gradients;
  entry->shapes.assign(shapes, shapes + linears);
  octavo::ops::refresh(*entry, parameters, linears);
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
