// The functions of octavo.h that look at a run: what the seals emitted, what was chosen. One that
// was closed holds nothing.
#include "sdk/src/base/handles.h"
#include "sdk/src/base/text.h"
#include "sdk/src/run/run.h"

namespace {

using octavo::with_object;

}  // namespace

uint32_t octavo_run_slot_count(const octavo_run *r) {
  return with_object(
      r, [](const octavo_run &run) { return static_cast<uint32_t>(run.slots().size()); });
}

const octavo_slot *octavo_run_slot(const octavo_run *r, uint32_t id) {
  return with_object(r, [&](const octavo_run &run) {
    return id < run.slots().size() ? &run.slots()[id] : nullptr;
  });
}

uint32_t octavo_run_use_count(const octavo_run *r, uint32_t owner_kind, uint32_t owner) {
  return with_object(r, [&](const octavo_run &run) {
    const auto *uses = run.uses(owner_kind, owner);
    return uses == nullptr ? 0 : static_cast<uint32_t>(uses->size());
  });
}

const octavo_slot_use *octavo_run_use(const octavo_run *r, uint32_t owner_kind, uint32_t owner,
                                      uint32_t index) {
  return with_object(r, [&](const octavo_run &run) {
    const auto *uses = run.uses(owner_kind, owner);
    return uses != nullptr && index < uses->size() ? &(*uses)[index] : nullptr;
  });
}

const octavo_linear_plan *octavo_run_plan(const octavo_run *r, uint32_t linear) {
  return with_object(r, [&](const octavo_run &run) { return run.plan(linear); });
}

const octavo_backend *octavo_run_backend(const octavo_run *r) {
  return with_object(r, [](const octavo_run &run) {
    return run.plugin() == nullptr ? nullptr : &run.tables().backend;
  });
}

const void *octavo_run_interface(const octavo_run *r, octavo_str id) {
  return with_object(r, [&](const octavo_run &run) -> const void * {
    if (run.plugin() == nullptr) return nullptr;
    const std::string_view name = std::string_view(id.data, id.size);
    if (name == OCTAVO_MEMORY_ID)
      return run.session() == nullptr ? nullptr : run.negotiation().device->memory();
    const octavo::LoadedPlugin &tables = run.tables();
    const auto own = [](const auto &table) -> const void * {
      return table.has_value() ? &*table : nullptr;
    };
    if (name == OCTAVO_BACKEND_ID) return &tables.backend;
    if (name == OCTAVO_OPTIMIZER_ID) return own(tables.optimizer);
    if (name == OCTAVO_GRADIENTS_ID) return own(tables.gradients);
    if (name == OCTAVO_FUSED_ID) return own(tables.fused);
    if (name == OCTAVO_GROUPED_ID) return own(tables.grouped);
    if (name == OCTAVO_SHARD_ID) return own(tables.shard);
    return tables.get_interface == nullptr ? nullptr : tables.get_interface(id);
  });
}

octavo_session *octavo_run_session(const octavo_run *r) {
  return with_object(r, [](const octavo_run &run) { return run.session(); });
}

const octavo_session_desc *octavo_run_session_desc(const octavo_run *r) {
  return with_object(r, [](const octavo_run &run) { return run.session_desc(); });
}

octavo_str octavo_run_precision(const octavo_run *r) {
  return with_object(r, [](const octavo_run &run) {
    const octavo::Candidate *choice = run.negotiation().choice();
    return octavo::borrow(choice->is_precision ? std::string_view(choice->id) : "fp8");
  });
}

octavo_str octavo_run_backend_id(const octavo_run *r) {
  return with_object(r, [](const octavo_run &run) {
    return run.plugin() == nullptr ? octavo_str{nullptr, 0} : octavo::borrow(run.plugin()->id);
  });
}

const octavo_plugin_info *octavo_run_plugin(const octavo_run *r) {
  return with_object(r, [](const octavo_run &run) { return run.plugin_info(); });
}

const octavo_setting *octavo_run_setting(const octavo_run *r, octavo_str key) {
  return with_object(r,
                     [&](const octavo_run &run) { return run.settings().find(octavo::view(key)); });
}

uint32_t octavo_run_option_count(const octavo_run *r, uint32_t linear) {
  return with_object(r, [&](const octavo_run &run) {
    return static_cast<uint32_t>(run.options(linear).entries().size());
  });
}

const octavo_setting *octavo_run_option(const octavo_run *r, uint32_t linear, uint32_t index) {
  return with_object(r, [&](const octavo_run &run) { return run.options(linear).at(index); });
}

octavo_str octavo_run_slot_key(const octavo_run *r, uint32_t id) {
  return with_object(r, [&](const octavo_run &run) {
    return id < run.slot_keys().size() ? octavo::borrow(run.slot_keys()[id]) : octavo_str{};
  });
}
