// Store: the slots of one run in host memory, whole or as one rank's part.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "run.h"

namespace octavo {

struct FreeAligned {
  void operator()(void *p) const;
};
using Memory = std::unique_ptr<void, FreeAligned>;

inline size_t width_of(uint32_t dtype) {
  return OCTAVO_DTYPE_BITS(dtype) / 8;
}
inline size_t bytes_of(const octavo_slot &s) {
  return static_cast<size_t>(s.rows) * static_cast<size_t>(s.cols) * width_of(s.dtype);
}
// Gives the parameters with WHOLE slots at or after `first_slot` to ranks: largest first, each to
// the rank that holds least. `loads` (elements by rank) and `owners` (by parameter) go on.
void assign_owners(const std::deque<octavo_slot> &slots, size_t first_slot,
                   std::vector<uint64_t> *loads, std::vector<uint32_t> *owners);
// The slots outside of WHOLE ones that optimizer_step writes for parameters that have some.
std::vector<uint32_t> published_slots(const std::deque<octavo_slot> &slots);

}  // namespace octavo

// The handle of octavo.h.
struct octavo_store {
 public:
  static constexpr size_t kVerbs = OCTAVO_VERB_REDUCE + 1;

  octavo_store(const octavo_run &run, uint32_t rank, uint32_t world);

  const octavo_run &run() const { return run_; }
  const octavo_host *host() const { return run_.host(); }
  uint32_t world() const { return static_cast<uint32_t>(loads_.size()); }
  // The rank that keeps the parameter's WHOLE slots; OCTAVO_NONE: no such parameter.
  uint32_t owner(uint32_t parameter) const;

  // Allocates what was sealed since the last time.
  void extend();
  void native(uint32_t parameter, uint32_t role, void *data);
  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const;
  void *address(uint32_t slot) const {
    return slot < addresses_.size() ? addresses_[slot] : nullptr;
  }
  uint64_t bytes(uint32_t role) const;
  void clear(uint32_t role);
  // Slots that optimizer_step writes on one rank and all ranks hold.
  const std::vector<uint32_t> &published() const { return published_; }

 private:
  bool is_here(const octavo_slot &s) const;
  void build_lists();
  void build(uint32_t owner_kind, uint32_t count);
  void *position(const octavo_slot_use &u, size_t verb) const;

  const octavo_run &run_;
  uint32_t rank_;
  std::vector<uint64_t> loads_;   // elements in WHOLE slots, by rank
  std::vector<uint32_t> owners_;  // by parameter
  std::vector<uint32_t> published_;
  std::vector<octavo::Memory> memory_;
  std::vector<void *> addresses_;  // by slot: own memory or the host's tensor; null: elsewhere
  std::array<std::vector<std::array<std::vector<void *>, kVerbs>>, 3> lists_;
  std::map<uint32_t, uint64_t> bytes_by_role_;
  uint64_t total_ = 0;
};
