// The lists are made once: natives are arguments of each call, and slots are asked for their
// memory.
#include "entry.h"

#include <torch/csrc/stable/c/shim.h>
#include <torch/headeronly/util/shim_utils.h>

#include <algorithm>

#include "error.h"
#include "host.h"
#include "octavo/hpp/text.hpp"
#include "stream.h"

namespace octavo::core {
namespace {

// Where in its slot a use begins, in bytes.
uint64_t offset_of(const octavo_slot &slot, const octavo_slot_use &use) {
  const bool is_range = slot.labels != nullptr && use.count > 0;
  return is_range ? static_cast<uint64_t>(use.first) * OCTAVO_DTYPE_BITS(slot.dtype) / 8 : 0;
}

bool is_telemetry(uint32_t role) {
  return role >= OCTAVO_ROLE_SATURATED && role <= OCTAVO_ROLE_NOISE;
}

// Appends one use to a list.
void append(const Registration &given, const octavo_slot_use &use, size_t verb, List *list) {
  const octavo_slot *slot = octavo_run_slot(given.run, use.slot);
  const uint8_t access = slot->access[verb];
  const auto at = static_cast<uint32_t>(list->slots.size());
  list->slots.emplace_back();
  if (access == OCTAVO_ACCESS_NONE) return;
  if (slot->flags & OCTAVO_SLOT_NATIVE) {
    if (slot->owner_kind != OCTAVO_OWNER_PARAMETER ||
        (slot->role != OCTAVO_ROLE_WEIGHT && slot->role != OCTAVO_ROLE_GRADIENT))
      raise(OCTAVO_UNSUPPORTED, "slot " + text(slot->name) +
                                    ": expected weights and gradients among torch's own tensors, "
                                    "found role " +
                                    std::to_string(slot->role) + "; choose another backend");
    list->natives.push_back(
        {at, slot->role, slot->dtype, slot->rows * slot->cols, access != OCTAVO_ACCESS_READ});
    return;
  }
  list->slots[at] = {use.slot, offset_of(*slot, use)};
  if (access != OCTAVO_ACCESS_ACCUMULATE) return;
  list->accumulators.push_back(at);
  if (is_telemetry(slot->role)) list->statistics.push_back(at);
}

ObjectLists lists(const Registration &given, uint32_t owner_kind, uint32_t owner) {
  ObjectLists out;
  const uint32_t count = octavo_run_use_count(given.run, owner_kind, owner);
  for (size_t verb = 0; verb < kVerbs; ++verb)
    for (uint32_t i = 0; i < count; ++i)
      append(given, *octavo_run_use(given.run, owner_kind, owner, i), verb, &out.verbs[verb]);
  return out;
}

void fill(const Registration &given, Entry *e) {
  e->run = given.run;
  e->backend = octavo_run_backend(given.run);
  e->optimizer = static_cast<const octavo_optimizer *>(
      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  e->gradients = static_cast<const octavo_gradients *>(
      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_GRADIENTS_ID)));
  e->fused = static_cast<const octavo_fused *>(
      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_FUSED_ID)));
  e->shard = static_cast<const octavo_shard *>(
      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_SHARD_ID)));
  e->session = octavo_run_session(given.run);
  const std::string device = text(given.device);
  uint32_t type = 0;
  TORCH_ERROR_CODE_CHECK(torch_parse_device_string(device.c_str(), &type, &e->device.index));
  e->device.type = static_cast<int32_t>(type);
  e->device.index = std::max(e->device.index, 0);
  const octavo_session_desc *desc = octavo_run_session_desc(given.run);  // null without a backend
  e->device.has_graphs = desc != nullptr && desc->device.type == OCTAVO_DEVICE_CUDA;
  e->session_lists = lists(given, OCTAVO_OWNER_SESSION, 0);
  for (uint32_t p = 0; p < given.parameter_count; ++p) {
    e->parameters.push_back(lists(given, OCTAVO_OWNER_PARAMETER, p));
    e->parameter_names.push_back(text(given.parameters[p].name));
    e->transposed.push_back(given.parameters[p].transposed != 0);
  }
  e->weight_workspace.assign(given.parameter_count, 0);
  e->shard_plans.resize(given.parameter_count);
  e->forwards = std::make_unique<std::atomic<uint64_t>[]>(given.linear_count);
  for (uint32_t l = 0; l < given.linear_count; ++l) {
    e->linears.push_back(lists(given, OCTAVO_OWNER_LINEAR, l));
    e->linear_names.push_back(text(given.linears[l].name));
    e->shapes.push_back(given.linears[l]);
    e->shapes.back().name = {};  // which is the host's memory
    const octavo_linear_plan *plan = octavo_run_plan(e->run, l);
    OCTAVO_TAKE(e->plans.emplace_back(), plan);
    octavo_extent extent = {};
    if (e->fused == nullptr || e->fused->workspace(e->session, l, &extent) != OCTAVO_OK)
      extent.row_multiple = 0;
    e->fused_workspace.push_back(extent);
    uint64_t &most = e->weight_workspace[given.linears[l].parameter];
    most = std::max(most, plan->weight_workspace);
  }
  e->slots.resize(octavo_run_slot_count(e->run));
  for (uint32_t id = 0; id < octavo_run_slot_count(e->run); ++id)
    if (octavo_run_slot(e->run, id)->role == OCTAVO_ROLE_NONFINITE &&
        e->device.type == aoti_torch_device_type_cpu())
      e->nonfinite = id;
  if (desc != nullptr)
    e->order.open(static_cast<const octavo_memory *>(
                      octavo_run_interface(given.run, OCTAVO_STR(OCTAVO_MEMORY_ID))),
                  desc->kernels_ctx);
  take_diagnostics();  // a backend without fused linears reports that; it is no error here
  e->coupling.open(given.parameter_count, given.flags, given.callbacks);
}

}  // namespace

std::unique_ptr<Entry> make_entry(const Registration &given) {
  auto entry = std::make_unique<Entry>();
  fill(given, entry.get());
  return entry;
}

const Native *List::native(uint32_t role) const {
  for (const Native &n : natives)
    if (n.role == role) return &n;
  return nullptr;
}

void *Entry::stream() const {
  return current_stream(device);
}

void Entry::hold(uint32_t slot, View tensor) {
  const octavo_slot *described = octavo_run_slot(run, slot);
  if (described == nullptr || (described->flags & OCTAVO_SLOT_NATIVE) != 0)
    raise(OCTAVO_INVALID, "slot " + std::to_string(slot) +
                              ": expected the number of a slot that the host allocates, below " +
                              std::to_string(slots.size()));
  const int64_t bytes = described->rows * described->cols * OCTAVO_DTYPE_BITS(described->dtype) / 8;
  const int64_t found = tensor.numel() * tensor.element_size();
  if (found != bytes || !tensor.is_contiguous())
    raise(OCTAVO_INVALID, "slot " + text(described->name) + ": expected " + std::to_string(bytes) +
                              " bytes without gaps, found " + std::to_string(found) +
                              " or another layout");
  slots[slot] = shared(tensor);
}

std::string Entry::name(uint32_t owner_kind, int64_t owner) const {
  const bool is_linear = owner_kind == OCTAVO_OWNER_LINEAR;
  const std::vector<std::string> &names = is_linear ? linear_names : parameter_names;
  const std::string kind = is_linear ? "linear " : "parameter ";
  if (owner < 0 || static_cast<size_t>(owner) >= names.size()) return kind + std::to_string(owner);
  const std::string &name = names[static_cast<size_t>(owner)];
  return kind + (name.empty() ? "\"\" (the model itself)" : name);
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

}  // namespace octavo::core
