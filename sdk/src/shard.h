// Assignment: which rank keeps the WHOLE slots of which parameter.
//
// Every rank computes it for itself from what the seals emitted, so it depends on nothing else: not
// on the rank, and not on how many seals one extend of a store covers.
#pragma once

#include <cstdint>
#include <vector>

#include "run.h"

namespace octavo {

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

}  // namespace octavo
