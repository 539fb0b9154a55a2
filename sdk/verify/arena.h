// One block of memory that holds everything a host owns: slots, tensors, `saved`, workspaces.
//
// Allocation depends on nothing but the sequence of sizes, so two arenas filled by the same calls
// have the same layout and can be compared byte by byte. Between two regions lies a red zone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "page_lock.h"

namespace octavo::conformance {

// kSum: a slot accumulated by addition, which depends on the number of calls.
enum class Use { kSlot, kSum, kTensor, kSaved, kWorkspace };

struct Region {
  uint64_t begin;  // offset in the arena
  uint64_t bytes;
  Use use;
  std::string name;
  uint32_t role;  // OCTAVO_ROLE_... of a slot, or of a tensor that a native slot names; else 0
};

using Snapshot = std::vector<uint8_t>;

class Arena {
 public:
  // For kernels of this device. `shift`, a multiple of OCTAVO_ALIGNMENT, is where it begins behind
  // a page: two arenas that differ in one bit of it differ in that bit of every address.
  explicit Arena(octavo_device device, uint64_t shift = 0);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  // The start of a new region, a multiple of 256 bytes; the bytes are 0. Never null.
  uint8_t *allocate(uint64_t bytes, Use use, std::string name, uint32_t role = 0);

  uint8_t *base() const { return base_; }
  uint64_t size() const { return next_; }    // through the last red zone
  uint64_t pages() const { return pages_; }  // size, rounded up to whole pages
  const std::vector<Region> &regions() const { return regions_; }
  uint64_t offset(const void *p) const;
  // Bytes from here to the end of the region; no limit outside of the arena.
  uint64_t room_at(const void *p) const;
  // "slot x/scale, byte 12 of 24", "the red zone behind slot x/scale, byte 3".
  std::string describe(uint64_t offset) const;

  Snapshot snapshot() const;
  void restore(const Snapshot &snapshot);
  // Fails when a byte between two regions changed; `what` says which call is to blame.
  void check_red_zones(const std::string &what) const;

 private:
  uint8_t *mapped_;
  uint64_t mapped_bytes_;
  uint8_t *base_;
  uint64_t next_;
  uint64_t pages_ = 0;
  uint64_t locked_ = 0;  // bytes from mapped_ on
  PageLock lock_;
  std::vector<Region> regions_;
};

// Fails at the first byte outside workspaces and sums in which the two snapshots differ. Both
// arenas must have been filled by the same calls; only the first min(size) bytes are compared.
// Regions for which `ignored` returns true are left out.
void expect_equal(const Arena &arena, const Snapshot &expected, const Snapshot &found,
                  const std::string &what, bool (*ignored)(const Region &region) = nullptr);

}  // namespace octavo::conformance
