// The functions of octavo.h that look at a run: what the seals emitted, what was chosen. One that
// was closed holds nothing.
#include "sdk/src/base/handles.h"
#include "sdk/src/base/text.h"
#include "sdk/src/run/run.h"

namespace {

using octavo::look;

// A table of the backend that runs; null: the run is closed, no backend runs, or it has none.
template <typename Table>
const Table *table_of(const octavo_run *r, std::optional<Table> octavo::LoadedPlugin::*member) {
  return look(r, [&](const octavo_run &run) -> const Table * {
    return run.plugin() != nullptr && run.tables().*member ? &*(run.tables().*member) : nullptr;
  });
}

}  // namespace

uint32_t octavo_run_slot_count(const octavo_run *r) {
  return look(r, [](const octavo_run &run) { return static_cast<uint32_t>(run.slots().size()); });
}

const octavo_slot *octavo_run_slot(const octavo_run *r, uint32_t id) {
  return look(r, [&](const octavo_run &run) {
    return id < run.slots().size() ? &run.slots()[id] : nullptr;
  });
}

uint32_t octavo_run_use_count(const octavo_run *r, uint32_t owner_kind, uint32_t owner) {
  return look(r, [&](const octavo_run &run) {
    const auto *uses = run.uses(owner_kind, owner);
    return uses == nullptr ? 0 : static_cast<uint32_t>(uses->size());
  });
}

const octavo_slot_use *octavo_run_use(const octavo_run *r, uint32_t owner_kind, uint32_t owner,
                                      uint32_t index) {
  return look(r, [&](const octavo_run &run) {
    const auto *uses = run.uses(owner_kind, owner);
    return uses != nullptr && index < uses->size() ? &(*uses)[index] : nullptr;
  });
}

const octavo_linear_plan *octavo_run_plan(const octavo_run *r, uint32_t linear) {
  return look(r, [&](const octavo_run &run) { return run.plan(linear); });
}

const octavo_backend *octavo_run_backend(const octavo_run *r) {
  return look(r, [](const octavo_run &run) {
    return run.plugin() == nullptr ? nullptr : &run.tables().backend;
  });
}

const octavo_optimizer *octavo_run_optimizer(const octavo_run *r) {
  return table_of(r, &octavo::LoadedPlugin::optimizer);
}

const octavo_fused *octavo_run_fused(const octavo_run *r) {
  return table_of(r, &octavo::LoadedPlugin::fused);
}

const octavo_grouped *octavo_run_grouped(const octavo_run *r) {
  return table_of(r, &octavo::LoadedPlugin::grouped);
}

const octavo_shard *octavo_run_shard(const octavo_run *r) {
  return table_of(r, &octavo::LoadedPlugin::shard);
}

const octavo_gradients *octavo_run_gradients(const octavo_run *r) {
  return table_of(r, &octavo::LoadedPlugin::gradients);
}

const octavo_memory *octavo_run_memory(const octavo_run *r) {
  return look(r, [](const octavo_run &run) {
    return run.session() == nullptr ? nullptr : run.negotiation().device->memory();
  });
}

octavo_session *octavo_run_session(const octavo_run *r) {
  return look(r, [](const octavo_run &run) { return run.session(); });
}

const octavo_session_desc *octavo_run_session_desc(const octavo_run *r) {
  return look(r, [](const octavo_run &run) { return run.session_desc(); });
}

octavo_str octavo_run_precision(const octavo_run *r) {
  return look(r, [](const octavo_run &run) {
    const octavo::Candidate *choice = run.negotiation().choice();
    return octavo::borrow(choice->is_precision ? std::string_view(choice->id) : "fp8");
  });
}

octavo_str octavo_run_backend_id(const octavo_run *r) {
  return look(r, [](const octavo_run &run) {
    return run.plugin() == nullptr ? octavo_str{nullptr, 0} : octavo::borrow(run.plugin()->id);
  });
}

const octavo_plugin_info *octavo_run_plugin(const octavo_run *r) {
  return look(r, [](const octavo_run &run) { return run.plugin_info(); });
}

const octavo_setting *octavo_run_setting(const octavo_run *r, octavo_str key) {
  return look(r, [&](const octavo_run &run) { return run.settings().find(octavo::view(key)); });
}

uint32_t octavo_run_option_count(const octavo_run *r, uint32_t linear) {
  return look(r, [&](const octavo_run &run) {
    return static_cast<uint32_t>(run.options(linear).entries().size());
  });
}

const octavo_setting *octavo_run_option(const octavo_run *r, uint32_t linear, uint32_t index) {
  return look(r, [&](const octavo_run &run) { return run.options(linear).at(index); });
}

octavo_str octavo_run_slot_key(const octavo_run *r, uint32_t id) {
  return look(r, [&](const octavo_run &run) {
    return id < run.slot_keys().size() ? octavo::borrow(run.slot_keys()[id]) : octavo_str{};
  });
}
