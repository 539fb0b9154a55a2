// Reads what a run chose and keeps.
#include "octavo/torch/session.h"

#include <ATen/ops/empty.h>

#include <octavo/hpp/text.hpp>

#include "in_slots.h"

namespace octavo::torch {

Session::Session(std::shared_ptr<Run> run) : run_(std::move(run)) {}

std::string Session::backend() const {
  return run_->backend_id();
}

std::string Session::precision() const {
  return run_->precision();
}

std::string Session::option(const std::string &name) const {
  return run_->option(name);
}

std::vector<Slot> Session::slots() const {
  std::vector<Slot> all;
  for (uint32_t id = 0; id < run_->memory().size(); ++id) {
    const octavo_slot &given = *octavo_run_slot(run_->handle(), id);
    Slot slot;
    if (given.owner_kind == OCTAVO_OWNER_PARAMETER) {
      slot.owner = run_->parameters().at(given.owner).name;
    } else if (given.owner_kind == OCTAVO_OWNER_LINEAR) {
      slot.owner = run_->linear_names().at(given.owner);
    }
    slot.name = text(given.name);
    slot.key = text(octavo_run_slot_key(run_->handle(), id));
    slot.role = given.role;
    slot.flags = given.flags;
    slot.tensor = run_->memory().tensor(id);
    for (int64_t i = 0; given.labels != nullptr && i < given.cols; ++i)
      slot.labels.push_back(text(given.labels[i]));
    all.push_back(std::move(slot));
  }
  return all;
}

uint64_t Session::steps() const {
  return run_->has_backend() ? run_->entry().calls[OCTAVO_VERB_END_STEP].load() : 0;
}

std::map<uint32_t, uint64_t> Session::bytes_by_role() const {
  std::map<uint32_t, uint64_t> bytes;
  for (const Slot &slot : slots())
    if (slot.tensor.defined()) bytes[slot.role] += slot.tensor.nbytes();
  return bytes;
}

uint64_t Session::bytes() const {
  return run_->memory().bytes();
}

at::Tensor Session::read(const std::string &parameter, uint32_t role) const {
  for (Parameter &p : run_->parameters()) {
    if (p.name != parameter) continue;
    take_replaced(*run_, p);
    const octavo_slot *slot = run_->slot_of(p, role);
    if (slot == nullptr || !run_->has_optimizer())
      throw Error(OCTAVO_INVALID, "parameter \"" + parameter + "\": expected a slot of role " +
                                      std::to_string(role) +
                                      " that the backend can read, found none");
    at::Tensor plain =
        at::empty({p.rows, p.cols}, at::TensorOptions(at::kFloat).device(run_->device()));
    run_->read_parameter(p, role, plain);
    return plain;
  }
  throw Error(OCTAVO_INVALID,
              "session: expected the name of a prepared parameter, found \"" + parameter + "\"");
}

}  // namespace octavo::torch
