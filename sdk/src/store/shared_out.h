// Which rank keeps the WHOLE slots of which parameter, and what a sharded step then sends: by the
// slots alone, for stores and for plans of more ranks than this machine has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "octavo/slots.h"

namespace octavo {

// Elements of the largest WHOLE slot, by parameter; of those that have one.
using WholeElements = std::map<uint32_t, uint64_t>;

inline void add_whole(WholeElements &largest, const octavo_slot &s) {
  if (s.shard != OCTAVO_SHARD_WHOLE) return;
  uint64_t &elements = largest[s.owner];
  elements = std::max(elements, static_cast<uint64_t>(s.rows) * static_cast<uint64_t>(s.cols));
}

// The parameter with the largest slot comes first (equal: the smaller id); each goes to the rank
// with the fewest elements so far (equal: the lower rank). loads: elements, by rank. own(parameter,
// rank) receives the answer.
template <typename Own>
void share_out(const WholeElements &largest, std::vector<uint64_t> &loads, Own own) {
  std::vector<std::pair<uint32_t, uint64_t>> order(largest.begin(), largest.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto &a, const auto &b) { return a.second > b.second; });
  for (const auto &[parameter, elements] : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    own(parameter, static_cast<uint32_t>(least - loads.begin()));
    *least += elements;
  }
}

// Whether the owner of a parameter sends this slot of it to the other ranks after a step.
inline bool is_published(const octavo_slot &s) {
  const uint8_t access = s.access[OCTAVO_VERB_OPTIMIZER_STEP];
  return s.shard != OCTAVO_SHARD_WHOLE &&
         (access == OCTAVO_ACCESS_UPDATE || access == OCTAVO_ACCESS_WRITE);
}

}  // namespace octavo
