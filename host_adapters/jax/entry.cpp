// Runs by number. A compiled program names its run by it, and may outlive the run.
#include "entry.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "parallel.h"

namespace octavo::jax {
namespace {

// A call holds it shared as long as it runs, so that no run is closed under a call.
std::shared_mutex mutex;
std::map<int64_t, Entry> entries;

List list_of(const octavo_run *run, uint32_t verb, uint32_t owner_kind, uint32_t owner) {
  List out;
  const uint32_t count = octavo_run_use_count(run, owner_kind, owner);
  for (uint32_t i = 0; i < count; ++i) {
    const octavo_slot_use *use = octavo_run_use(run, owner_kind, owner, i);
    const octavo_slot *slot = octavo_run_slot(run, use->slot);
    const bool is_range = slot->labels != nullptr && use->count > 0;
    const uint64_t row = OCTAVO_DTYPE_BYTES(slot->dtype, slot->cols);
    Place place;
    place.access = slot->access[verb];
    place.bytes = is_range ? OCTAVO_DTYPE_BYTES(slot->dtype, use->count)
                           : static_cast<uint64_t>(slot->rows) * row;
    place.slot = text(slot->name);
    out.push_back(std::move(place));
  }
  return out;
}

Entry make_entry(const Registration &given) {
  Entry e;
  e.run = given.run;
  e.backend = octavo_run_backend(given.run);
  e.optimizer = static_cast<const octavo_optimizer *>(
      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  e.gradients = static_cast<const octavo_gradients *>(
      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_GRADIENTS_ID)));
  e.session = octavo_run_session(given.run);
  e.device = octavo_run_session_desc(given.run)->device;
  e.lists[OCTAVO_VERB_END_STEP].push_back(
      list_of(e.run, OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0));
  e.weight_workspace.assign(given.parameter_count, 0);
  for (uint32_t p = 0; p < given.parameter_count; ++p) {
    for (const uint32_t verb :
         {OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_VERB_REDUCE})
      e.lists[verb].push_back(list_of(e.run, verb, OCTAVO_OWNER_PARAMETER, p));
    const List &reduce = e.lists[OCTAVO_VERB_REDUCE].back();
    if (std::any_of(reduce.begin(), reduce.end(),
                    [](const Place &place) { return place.access != OCTAVO_ACCESS_NONE; }))
      e.reduced.push_back(p);
    e.rows.push_back(given.shapes[2 * p]);
    e.cols.push_back(given.shapes[2 * p + 1]);
  }
  for (uint32_t l = 0; l < given.linear_count; ++l) {
    for (const uint32_t verb : {OCTAVO_VERB_FORWARD, OCTAVO_VERB_BACKWARD})
      e.lists[verb].push_back(list_of(e.run, verb, OCTAVO_OWNER_LINEAR, l));
    const uint32_t weight = given.weights[l];
    e.n.push_back(e.rows[weight]);
    e.k.push_back(e.cols[weight]);
    OCTAVO_TAKE(e.plans.emplace_back(), octavo_run_plan(e.run, l));
    e.weight_workspace[weight] =
        std::max(e.weight_workspace[weight], e.plans.back().weight_workspace);
  }
  return e;
}

// FNV-1a over all that a compiled program takes for granted: equal models get equal numbers in
// every process, so that a program from JAX's cache on disk finds its run, and no other one.
int64_t program_hash(const Entry &e, const std::string &options) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&hash](const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char *>(data)[i]) * 1099511628211u;
  };
  const std::string backend = text(octavo_run_backend_id(e.run));
  add(backend.data(), backend.size());
  add(options.data(), options.size());
  for (const std::vector<List> &objects : e.lists)
    for (const List &list : objects)
      for (const Place &p : list) {
        add(&p.access, sizeof p.access);
        add(&p.bytes, sizeof p.bytes);
        add(p.slot.data(), p.slot.size());
      }
  for (const octavo_linear_plan &p : e.plans) add(&p.saved, sizeof p.saved);
  return static_cast<int64_t>((hash >> 24) << 22 & INT64_MAX);
}

}  // namespace

const List &Entry::list(uint32_t verb, int64_t object) const {
  const std::vector<List> &objects = lists[verb];
  if (object < 0 || static_cast<size_t>(object) >= objects.size())
    throw Error("object " + std::to_string(object) + ": expected a number below " +
                    std::to_string(objects.size()),
                OCTAVO_INVALID, {});
  return objects[static_cast<size_t>(object)];
}

uint64_t Entry::optimizer_bytes(int64_t first, int64_t count) const {
  if (optimizer == nullptr)
    throw Error("octavo.optimizer/2: the backend has none; step its parameters with optax",
                OCTAVO_UNSUPPORTED, {});
  std::vector<uint32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<uint32_t>(first + i));
  uint64_t bytes = 0;
  host().require(optimizer->workspace_bytes(session, ids.data(), ids.size(), &bytes),
                 "workspace_bytes");
  return bytes;
}

Host &host() {
  static Host one;
  static const bool is_set = (one.set_parallel(parallel()), true);
  static_cast<void>(is_set);
  return one;
}

int64_t enter(const Registration &given) {
  Entry entry = make_entry(given);
  const std::unique_lock lock(mutex);
  int64_t number = program_hash(entry, given.options) + 1;
  while (entries.contains(number)) ++number;
  entries.emplace(number, std::move(entry));
  return number;
}

void leave(int64_t number) {
  const std::unique_lock lock(mutex);
  entries.erase(number);
}

void with_entry(int64_t number, const std::function<void(const Entry &)> &use) {
  const std::shared_lock lock(mutex);
  const auto found = entries.find(number);
  if (found == entries.end())
    throw Error("run " + std::to_string(number) +
                    ": expected the number of an open run, found none; its state was closed, or "
                    "this program was compiled for another model: call octavo.jax.init and compile "
                    "again",
                OCTAVO_WRONG_STATE, {});
  use(found->second);
}

}  // namespace octavo::jax
