// Who keeps which parameter's WHOLE slots, and what crosses ranks because of it.
#include <algorithm>
#include <map>
#include <string>

#include "store.h"
#include "wall.h"

namespace octavo {

std::vector<uint32_t> published_slots(const std::deque<octavo_slot> &slots) {
  std::vector<bool> is_sharded;
  for (const octavo_slot &s : slots) {
    if (s.owner_kind != OCTAVO_OWNER_PARAMETER || s.shard != OCTAVO_SHARD_WHOLE) continue;
    if (s.owner >= is_sharded.size()) is_sharded.resize(s.owner + 1, false);
    is_sharded[s.owner] = true;
  }
  std::vector<uint32_t> published;
  for (const octavo_slot &s : slots) {
    const uint8_t access = s.access[OCTAVO_VERB_OPTIMIZER_STEP];
    const bool is_stepped = access == OCTAVO_ACCESS_UPDATE || access == OCTAVO_ACCESS_WRITE;
    if (s.owner_kind == OCTAVO_OWNER_PARAMETER && s.owner < is_sharded.size() &&
        is_sharded[s.owner] && s.shard != OCTAVO_SHARD_WHOLE && is_stepped)
      published.push_back(s.id);
  }
  return published;
}

void assign_owners(const std::deque<octavo_slot> &slots, size_t first_slot,
                   std::vector<uint64_t> *loads, std::vector<uint32_t> *owners) {
  // A parameter counts as its largest WHOLE slot, which is the size of the tensor itself.
  std::map<uint32_t, uint64_t> sizes;
  for (size_t i = first_slot; i < slots.size(); ++i) {
    const octavo_slot &s = slots[i];
    if (s.owner_kind != OCTAVO_OWNER_PARAMETER || s.shard != OCTAVO_SHARD_WHOLE) continue;
    uint64_t &size = sizes[s.owner];
    size = std::max(size, static_cast<uint64_t>(s.rows) * static_cast<uint64_t>(s.cols));
  }
  std::vector<std::pair<uint32_t, uint64_t>> largest_first(sizes.begin(), sizes.end());
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [](const auto &a, const auto &b) { return a.second > b.second; });
  for (const auto &[parameter, size] : largest_first) {
    const auto least = std::min_element(loads->begin(), loads->end());
    *least += size;
    if (parameter >= owners->size()) owners->resize(parameter + 1, 0);
    (*owners)[parameter] = static_cast<uint32_t>(least - loads->begin());
  }
}

namespace {

[[noreturn]] void refuse(octavo_status status, const std::string &text) {
  throw Failure(status, "octavo.store", text);
}

void check_collective(const octavo_collective *c) {
  if (c == nullptr || c->run == nullptr || c->world == 0)
    refuse(OCTAVO_INVALID, "expected a collective with a run function and a world of 1 or more");
}

std::string name_of(const octavo_slot &s) {
  return "slot \"" + std::string(s.name.data, s.name.size) + "\" of parameter " +
         std::to_string(s.owner);
}

octavo_status reduce(octavo_store &store, const octavo_collective &c, void *stream) {
  const auto &slots = store.run().slots();
  for (const octavo_slot &s : slots) {
    if ((s.flags & OCTAVO_SLOT_REDUCE) == 0) continue;
    if (s.dtype != OCTAVO_F32 ||
        (s.combine != OCTAVO_COMBINE_MAX && s.combine != OCTAVO_COMBINE_SUM))
      refuse(OCTAVO_UNSUPPORTED, "slot \"" + std::string(s.name.data, s.name.size) +
                                     "\": expected f32 combined by MAX or SUM, found dtype " +
                                     std::to_string(s.dtype) + ", combine " +
                                     std::to_string(s.combine));
  }
  for (const octavo_slot &s : slots) {
    void *data = store.address(s.id);
    if ((s.flags & OCTAVO_SLOT_REDUCE) == 0 || data == nullptr) continue;
    const auto count = static_cast<uint64_t>(s.rows) * static_cast<uint64_t>(s.cols);
    const uint32_t collective = s.combine == OCTAVO_COMBINE_MAX ? OCTAVO_COLLECTIVE_ALL_REDUCE_MAX
                                                                : OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
    const octavo_status status =
        c.run(c.ctx, collective, OCTAVO_F32, data, count, data, count, stream);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

octavo_status publish(octavo_store &store, const octavo_collective &c, void *stream) {
  if (c.world != store.world())
    refuse(OCTAVO_INVALID, "the store is shared out over " + std::to_string(store.world()) +
                               " ranks, the collective has " + std::to_string(c.world) +
                               ": open a store for " + std::to_string(c.world) +
                               " ranks and hand the states over with read_parameter and "
                               "write_parameter");
  if (store.world() == 1) return OCTAVO_OK;
  if (c.broadcast == nullptr)
    refuse(OCTAVO_UNSUPPORTED,
           "a sharded store needs octavo_collective.broadcast, found null: provide it, or open "
           "the store without sharding");
  const auto &slots = store.run().slots();
  for (const uint32_t id : store.published())
    if (store.address(id) == nullptr)
      refuse(OCTAVO_INVALID, name_of(slots[id]) +
                                 ": expected its address, found null: hand the tensor in with "
                                 "octavo_store_native, or extend the store");
  for (const uint32_t id : store.published()) {
    const octavo_slot &s = slots[id];
    const octavo_status status =
        c.broadcast(c.ctx, store.owner(s.owner), store.address(id), bytes_of(s), stream);
    if (status != OCTAVO_OK) return status;
  }
  return OCTAVO_OK;
}

}  // namespace
}  // namespace octavo

octavo_status octavo_store_reduce(octavo_store *s, const octavo_collective *c, void *stream) {
  if (s == nullptr) return OCTAVO_INVALID;
  return octavo::guarded(s->host(), [&] {
    octavo::check_collective(c);
    return octavo::reduce(*s, *c, stream);
  });
}

octavo_status octavo_store_publish(octavo_store *s, const octavo_collective *c, void *stream) {
  if (s == nullptr) return OCTAVO_INVALID;
  return octavo::guarded(s->host(), [&] {
    octavo::check_collective(c);
    return octavo::publish(*s, *c, stream);
  });
}
