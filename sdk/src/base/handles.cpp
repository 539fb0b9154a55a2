// A handle: bit 62, then 4 bits of kind, 34 of generation, 20 of place, 4 zero bits.
#include "sdk/src/base/handles.h"

namespace octavo {
namespace {

constexpr uint64_t kMark = uint64_t{1} << 62;
constexpr uint64_t kTaken = 1;  // an entry that is being filled; no handle has this value
constexpr uint64_t kGenerations = uint64_t{1} << 34;

uint64_t place_of(uint64_t handle) {
  return handle >> 4 & 0xFFFFF;
}

}  // namespace

HandleTable::Entry *HandleTable::entry(uint64_t place) const noexcept {
  Entry *chunk = chunks_[place / kChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[place % kChunk];
}

HandleTable::Entry &HandleTable::made_entry(uint64_t place) {
  std::atomic<Entry *> &chunk = chunks_[place / kChunk];
  if (chunk.load(std::memory_order_acquire) == nullptr) {
    auto made = std::make_unique<Entry[]>(kChunk);
    Entry *none = nullptr;
    // GCOVR_EXCL_BR_START: false when another thread makes the same chunk in this very moment
    if (chunk.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) made.release();
    // GCOVR_EXCL_BR_STOP
  }
  return *entry(place);
}

uint64_t HandleTable::open(void *object) {
  for (uint64_t place = 0; place < places_; ++place) {
    Entry &e = made_entry(place);
    uint64_t free = 0;
    if (!e.handle.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) continue;
    e.generation = (e.generation + 1) % kGenerations;
    const uint64_t handle = kMark | kind_ << 58 | e.generation << 24 | place << 4;
    e.object.store(object, std::memory_order_relaxed);
    e.handle.store(handle, std::memory_order_release);
    return handle;
  }
  throw Failure(OCTAVO_NO_RESOURCE, "octavo", "expected at most ", places_,
                " open objects of one kind, found more; close those that are no longer used");
}

void *HandleTable::find(uint64_t handle) const noexcept {
  const Entry *e = entry(place_of(handle));
  if (e == nullptr || handle <= kTaken || e->handle.load(std::memory_order_acquire) != handle)
    return nullptr;
  return e->object.load(std::memory_order_relaxed);
}

void *HandleTable::close(uint64_t handle, After after) noexcept {
  Entry *e = entry(place_of(handle));
  if (e == nullptr || handle <= kTaken) return nullptr;
  void *object = e->object.load(std::memory_order_relaxed);  // the handle's, if it is current
  const uint64_t left = after == After::kReuse ? 0 : kTaken;
  const bool is_first = e->handle.compare_exchange_strong(handle, left, std::memory_order_acq_rel);
  return is_first ? object : nullptr;
}

template <>
HandleTable &handle_table<octavo_run>() {
  static auto *table = new HandleTable(1);
  return *table;
}
template <>
HandleTable &handle_table<octavo_store>() {
  static auto *table = new HandleTable(2);
  return *table;
}
template <>
HandleTable &handle_table<octavo_threads>() {
  static auto *table = new HandleTable(3);
  return *table;
}
template <>
HandleTable &handle_table<octavo_ranks>() {
  static auto *table = new HandleTable(4);
  return *table;
}

}  // namespace octavo
