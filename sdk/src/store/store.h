// octavo_store: slots in host memory, with one ready pointer list per object and verb.
//
// A slot that this rank does not hold has no memory, and every list has null in its place.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "sdk/src/run/run.h"

namespace octavo {

// Which rank keeps the WHOLE slots of which parameter. Every rank computes it for itself from what
// the seals emitted, so it depends on nothing else: not on the rank, and not on how many seals one
// extend of a store covers.
class Assignment {
 public:
  explicit Assignment(uint32_t world) : loads_(world, 0) {}

  // Adds the seals since the last call. Of the parameters of one seal that have a WHOLE slot, the
  // one with the largest such slot comes first (equal: the smaller id); each goes to the rank with
  // the fewest elements so far (equal: the lower rank). Loads persist over seals.
  void extend(const octavo_run &run);

  // OCTAVO_NONE: a parameter without WHOLE slots, which every rank keeps and steps.
  uint32_t owner(uint32_t parameter) const {
    return parameter < owners_.size() ? owners_[parameter] : OCTAVO_NONE;
  }

 private:
  void extend(const octavo_run &run, size_t first_slot, size_t end_slot);

  std::vector<uint64_t> loads_;  // elements, by rank
  std::vector<uint32_t> owners_;
  size_t seals_ = 0;
};

constexpr size_t kSlotAlignment = 256;
inline constexpr char kStoreDomain[] = "octavo.store";

template <typename... Part>
[[noreturn]] void fail_store(octavo_status status, const Part &...text) {
  throw Failure(status, kStoreDomain, text...);
}

// Of the device, or of the host where the device works on that.
struct FreeSlot {
  std::shared_ptr<const OpenDevice> device;
  bool is_hosts = false;  // the host's own memory, which stays
  void operator()(void *p) const;
};
using SlotMemory = std::unique_ptr<void, FreeSlot>;

// Gives every element of a slot's memory, which the host can write, its initial value.
void fill_initial(const octavo_slot &s, void *memory);

}  // namespace octavo

struct octavo_store {
 public:
  // `handle`: that of `run`. slots, more: of octavo_store_over, or null.
  octavo_store(const octavo_run *handle, const octavo_run &run, uint32_t rank, uint32_t world,
               void *const *slots = nullptr, octavo_str *more = nullptr);

  // False once its run is closed: then only its memory and lists are left, until it is closed, too.
  bool is_usable() const;
  const octavo_host *host() const { return run_.host(); }
  const octavo_run &run() const { return run_; }
  uint32_t rank() const { return rank_; }
  uint32_t world() const { return world_; }
  // Slots of the seals that extend has seen.
  size_t slot_count() const { return addresses_.size(); }
  // Whether the store has memory for a slot; else it is native, or another rank keeps it.
  bool has_memory(uint32_t slot) const { return memory_[slot] != nullptr; }
  // The bytes of such a slot: in place, or a copy in `copy` where the host cannot read them.
  const void *read(uint32_t slot, std::vector<unsigned char> &copy) const;
  void write(uint32_t slot, const void *from);
  void write_initial(uint32_t slot);
  // The bytes that the host saves with the slots; null: none are asked for.
  const octavo_str *more() const { return more_; }
  void take_more(std::vector<unsigned char> bytes);

  void extend(void *const *given = nullptr);
  void native(uint32_t parameter, uint32_t role, void *data);
  void clear(uint32_t role);
  void reduce(const octavo_collective *given, void *stream);
  void publish(const octavo_collective *given, void *stream) const;

  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const;
  void *address(uint32_t slot) const {
    return slot < addresses_.size() ? addresses_[slot] : nullptr;
  }
  uint64_t bytes(uint32_t role) const;
  uint32_t owner(uint32_t parameter) const {
    return parameter < owners_.size() ? owners_[parameter] : OCTAVO_NONE;
  }

 private:
  static constexpr size_t kVerbs = OCTAVO_VERB_REDUCE + 1;
  struct Published {
    uint32_t slot;
    uint32_t root;
  };

  bool holds(const octavo_slot &s) const;
  bool is_on_host() const;
  octavo::SlotMemory allocate(const octavo_slot &s) const;
  octavo::SlotMemory given_memory(const octavo_slot &s, void *memory) const;
  void put(const octavo_slot &s, void *memory, const void *from) const;
  void put_initial(const octavo_slot &s, void *memory) const;
  void zero(uint32_t slot);
  void expect_done(octavo_status status, const octavo_slot &s, const char *what) const;
  void build_lists();
  void build(uint32_t owner_kind, uint32_t count);
  void *position(const octavo_slot_use &u, size_t verb) const;
  void find_exchanged();
  void expect_same_objects(const octavo_collective &c, void *stream);
  octavo_collective checked(const octavo_collective *given, const char *verb) const;
  std::string describe(const octavo_slot &s) const;

  const octavo_run *handle_;
  const octavo_run &run_;
  std::shared_ptr<const octavo::OpenDevice> device_;  // null without a backend
  uint32_t rank_;
  uint32_t world_;
  octavo::Assignment assignment_;
  std::vector<uint32_t> owners_;  // by parameter: the rank that steps it; own rank: every rank does
  std::vector<octavo::SlotMemory> memory_;
  std::vector<void *> addresses_;  // by slot: own memory or the host's tensor
  std::array<std::vector<std::array<std::vector<void *>, kVerbs>>, 3> lists_;
  std::vector<uint32_t> reduced_;     // slots
  bool are_same_objects_ = false;     // on every rank, in reduced_
  octavo::SlotMemory digest_;         // of them
  std::vector<Published> published_;  // what a sharded step writes outside of WHOLE slots
  std::map<uint32_t, uint64_t> bytes_by_role_;
  uint64_t total_ = 0;
  octavo_str *more_ = nullptr;  // the host's
  std::vector<unsigned char> loaded_more_;
};
