// The functions of octavo.h that look at a run: what the seals emitted, what was chosen. One that
// was closed holds nothing.
#include "handles.h"
#include "run.h"
#include "text.h"

namespace {

using octavo::find_handle;

// Null: the run is closed, or no backend runs in it.
const octavo::LoadedPlugin *plugin_of(const octavo_run *r) {
  const octavo_run *run = find_handle(r);
  return run == nullptr ? nullptr : run->plugin();
}

}  // namespace

uint32_t octavo_slot_count(const octavo_run *r) {
  const octavo_run *run = find_handle(r);
  return run == nullptr ? 0 : static_cast<uint32_t>(run->slots().size());
}

const octavo_slot *octavo_get_slot(const octavo_run *r, uint32_t id) {
  const octavo_run *run = find_handle(r);
  return run != nullptr && id < run->slots().size() ? &run->slots()[id] : nullptr;
}

uint32_t octavo_use_count(const octavo_run *r, uint32_t owner_kind, uint32_t owner) {
  const octavo_run *run = find_handle(r);
  const auto *uses = run == nullptr ? nullptr : run->uses(owner_kind, owner);
  return uses == nullptr ? 0 : static_cast<uint32_t>(uses->size());
}

const octavo_slot_use *octavo_get_use(const octavo_run *r, uint32_t owner_kind, uint32_t owner,
                                      uint32_t index) {
  const octavo_run *run = find_handle(r);
  const auto *uses = run == nullptr ? nullptr : run->uses(owner_kind, owner);
  return uses != nullptr && index < uses->size() ? &(*uses)[index] : nullptr;
}

const octavo_linear_plan *octavo_get_plan(const octavo_run *r, uint32_t linear) {
  const octavo_run *run = find_handle(r);
  return run == nullptr ? nullptr : run->plan(linear);
}

const octavo_backend *octavo_backend_of(const octavo_run *r) {
  const octavo::LoadedPlugin *plugin = plugin_of(r);
  return plugin == nullptr ? nullptr : &plugin->backend;
}

const octavo_optimizer *octavo_optimizer_of(const octavo_run *r) {
  const octavo::LoadedPlugin *plugin = plugin_of(r);
  return plugin != nullptr && plugin->optimizer ? &*plugin->optimizer : nullptr;
}

const octavo_fused *octavo_fused_of(const octavo_run *r) {
  const octavo::LoadedPlugin *plugin = plugin_of(r);
  return plugin != nullptr && plugin->fused ? &*plugin->fused : nullptr;
}

const octavo_gradients *octavo_gradients_of(const octavo_run *r) {
  const octavo::LoadedPlugin *plugin = plugin_of(r);
  return plugin != nullptr && plugin->gradients ? &*plugin->gradients : nullptr;
}

const octavo_memory *octavo_memory_of(const octavo_run *r) {
  const octavo_run *run = find_handle(r);
  if (run == nullptr || run->session() == nullptr) return nullptr;
  return run->negotiation().device->memory();
}

octavo_session *octavo_session_of(const octavo_run *r) {
  const octavo_run *run = find_handle(r);
  return run == nullptr ? nullptr : run->session();
}

const octavo_session_desc *octavo_session_desc_of(const octavo_run *r) {
  const octavo_run *run = find_handle(r);
  return run == nullptr ? nullptr : run->session_desc();
}

octavo_str octavo_precision_of(const octavo_run *r) {
  const octavo_run *run = find_handle(r);
  if (run == nullptr) return octavo_str{nullptr, 0};
  const octavo::Candidate *choice = run->negotiation().choice();
  return choice->is_precision ? octavo::str(choice->id) : octavo::str("fp8");
}

octavo_str octavo_backend_id_of(const octavo_run *r) {
  const octavo::LoadedPlugin *plugin = plugin_of(r);
  return plugin == nullptr ? octavo_str{nullptr, 0} : octavo::str(plugin->id);
}
