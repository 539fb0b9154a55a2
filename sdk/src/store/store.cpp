// Allocates slots and builds the lists; what ranks do together is in store_ranks.cpp.
#include "sdk/src/store/store.h"

#include "sdk/src/base/dtype.h"
#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/ranks/process_ranks.h"

namespace {

octavo_status open(const octavo_run *r, const char *function, uint32_t rank, uint32_t world,
                   octavo_store **out, void *const *slots = nullptr, octavo_str *more = nullptr) {
  if (out != nullptr) *out = nullptr;  // for a handle that is none, too
  return octavo::call_guarded(r, [&](const octavo_run &run) {
    octavo::require_not_null(out, function, "out");
    if (world < 1 || world > 65536)
      octavo::fail_store(OCTAVO_INVALID, "a store: expected a world of 1 to 65536 ranks, found ",
                         world);
    if (rank >= world)
      octavo::fail_store(OCTAVO_INVALID, "a store for one of ", world,
                         " ranks: expected a rank from 0 to ", world - 1, ", found ", rank);
    const octavo::OpenDevice *device = run.negotiation().device.get();
    if (device != nullptr && !device->uses_host_memory() && device->memory() == nullptr)
      octavo::fail_store(OCTAVO_UNSUPPORTED,
                         "a store: expected kernels with the interface " OCTAVO_MEMORY_ID
                         " for a device with separate memory, found none; allocate the "
                         "slots as the host's own tensors");
    *out = octavo::open_handle(std::make_unique<octavo_store>(r, run, rank, world, slots, more));
  });
}

}  // namespace

octavo_store::octavo_store(const octavo_run *handle, const octavo_run &run, uint32_t rank,
                           uint32_t world, void *const *slots, octavo_str *more)
    : handle_(handle),
      run_(run),
      device_(run.negotiation().device),
      rank_(rank),
      world_(world),
      assignment_(world),
      more_(more) {
  extend(slots);
  octavo::add_process_rank(world, rank);
}

bool octavo_store::is_usable() const {
  return octavo::find_handle(handle_) != nullptr;
}

// Whether this rank keeps the slot.
bool octavo_store::holds(const octavo_slot &s) const {
  return s.shard != OCTAVO_SHARD_WHOLE || owners_[s.owner] == rank_;
}

void octavo_store::extend(void *const *given) {
  if (!run_.is_sealed())
    octavo::fail_store(OCTAVO_WRONG_STATE,
                       "a store: expected a run whose layers are sealed, found ",
                       run_.parameter_count(), " parameters and ", run_.linear_count(),
                       " linears that no seal covers in full; call octavo_seal before");
  assignment_.extend(run_);
  owners_.clear();
  for (uint32_t p = 0; p < run_.parameter_count(); ++p)
    owners_.push_back(assignment_.owner(p) == OCTAVO_NONE ? rank_ : assignment_.owner(p));
  for (size_t i = memory_.size(); i < run_.slots().size(); ++i) {
    const octavo_slot &s = run_.slots()[i];
    const bool own = (s.flags & OCTAVO_SLOT_NATIVE) == 0 && holds(s);
    if (!own)
      memory_.push_back(octavo::SlotMemory(nullptr, octavo::FreeSlot{}));
    else
      memory_.push_back(given != nullptr ? given_memory(s, given[i]) : allocate(s));
    addresses_.push_back(given != nullptr ? given[i] : memory_.back().get());
    if (!own || given != nullptr) continue;
    total_ += octavo::slot_bytes(s);
    bytes_by_role_[s.role] += octavo::slot_bytes(s);
  }
  find_exchanged();
  build_lists();
}

void octavo_store::native(uint32_t parameter, uint32_t role, void *data) {
  bool found = false;
  for (const octavo_slot &s : run_.slots()) {
    if (s.owner_kind != OCTAVO_OWNER_PARAMETER || s.owner != parameter || s.role != role ||
        (s.flags & OCTAVO_SLOT_NATIVE) == 0 || s.id >= addresses_.size())
      continue;
    addresses_[s.id] = data;
    found = true;
  }
  if (!found)
    octavo::fail_store(
        OCTAVO_INVALID, "parameter ", parameter, ": expected a native slot of role ", role,
        ", found none; the backend keeps this tensor itself, or the store was not extended after "
        "the seal");
  build_lists();
}

void octavo_store::clear(uint32_t role) {
  if (role == 0)
    octavo::fail_store(OCTAVO_INVALID,
                       "octavo_store_clear: expected a slot role (OCTAVO_ROLE_...), found 0");
  for (size_t i = 0; i < memory_.size(); ++i)
    if (memory_[i] != nullptr && run_.slots()[i].role == role) zero(static_cast<uint32_t>(i));
}

void *const *octavo_store::list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const {
  static void *const empty[1] = {nullptr};
  if (verb >= kVerbs || owner_kind < 1 || owner_kind > 3) return empty;
  const auto &owners = lists_[owner_kind - 1];
  if (owner >= owners.size() || owners[owner][verb].empty()) return empty;
  return owners[owner][verb].data();
}

uint64_t octavo_store::bytes(uint32_t role) const {
  if (role == 0) return total_;
  const auto found = bytes_by_role_.find(role);
  return found == bytes_by_role_.end() ? 0 : found->second;
}

void octavo_store::build_lists() {
  build(OCTAVO_OWNER_SESSION, 1);
  build(OCTAVO_OWNER_PARAMETER, run_.parameter_count());
  build(OCTAVO_OWNER_LINEAR, run_.linear_count());
}

void octavo_store::build(uint32_t owner_kind, uint32_t count) {
  auto &owners = lists_[owner_kind - 1];
  owners.resize(count);
  for (uint32_t owner = 0; owner < count; ++owner) {
    const std::deque<octavo_slot_use> *uses = run_.uses(owner_kind, owner);
    if (uses == nullptr) continue;
    for (size_t verb = 0; verb < kVerbs; ++verb) {
      std::vector<void *> &list = owners[owner][verb];
      list.clear();
      for (const octavo_slot_use &u : *uses) list.push_back(position(u, verb));
    }
  }
}

void *octavo_store::position(const octavo_slot_use &u, size_t verb) const {
  if (u.slot >= addresses_.size()) return nullptr;  // of a seal since the last extend
  const octavo_slot &s = run_.slots()[u.slot];
  if (s.access[verb] == OCTAVO_ACCESS_NONE || addresses_[u.slot] == nullptr || !holds(s))
    return nullptr;
  return static_cast<char *>(addresses_[u.slot]) + u.first * octavo::element_bytes(s.dtype);
}

octavo_status octavo_store_open(const octavo_run *r, octavo_store **out) {
  return open(r, "octavo_store_open", 0, 1, out);
}

octavo_status octavo_store_over(const octavo_run *r, void *const *slots, octavo_str *more,
                                octavo_store **out) {
  if (out != nullptr) *out = nullptr;
  const octavo_status status = octavo::call_guarded(r, [&](const octavo_run &) {
    octavo::require_not_null(slots, "octavo_store_over", "slots");
  });
  return status != OCTAVO_OK ? status : open(r, "octavo_store_over", 0, 1, out, slots, more);
}

octavo_status octavo_store_open_sharded(const octavo_run *r, uint32_t rank, uint32_t world,
                                        octavo_store **out) {
  return open(r, "octavo_store_open_sharded", rank, world, out);
}

uint32_t octavo_store_owner(const octavo_store *s, uint32_t parameter) {
  const octavo_store *store = octavo::find_handle(s);
  return store == nullptr ? OCTAVO_NONE : store->owner(parameter);
}

octavo_status octavo_store_extend(octavo_store *s) {
  return octavo::call_guarded(s, [&](octavo_store &store) { store.extend(); });
}

octavo_status octavo_store_native(octavo_store *s, uint32_t parameter, uint32_t role, void *data) {
  return octavo::call_guarded(s, [&](octavo_store &store) { store.native(parameter, role, data); });
}

octavo_status octavo_store_clear(octavo_store *s, uint32_t role) {
  return octavo::call_guarded(s, [&](octavo_store &store) { store.clear(role); });
}

void *const *octavo_store_slots(const octavo_store *s, uint32_t verb, uint32_t owner_kind,
                                uint32_t owner) {
  static void *const empty[1] = {nullptr};
  const octavo_store *store = octavo::find_handle(s);
  return store == nullptr ? empty : store->list(verb, owner_kind, owner);
}

void *octavo_store_address(const octavo_store *s, uint32_t slot) {
  const octavo_store *store = octavo::find_handle(s);
  return store == nullptr ? nullptr : store->address(slot);
}

uint64_t octavo_store_bytes(const octavo_store *s, uint32_t role) {
  const octavo_store *store = octavo::find_handle(s);
  return store == nullptr ? 0 : store->bytes(role);
}

void octavo_store_close(octavo_store *s) {
  octavo::close_handle(s);
}
