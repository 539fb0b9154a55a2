// The greedy assignment: largest first, each to the rank that holds least.
#include "sdk/src/store/store.h"

#include <algorithm>
#include <map>

namespace octavo {

void Assignment::extend(const octavo_run &run) {
  owners_.resize(run.parameter_count(), OCTAVO_NONE);
  for (; seals_ < run.seal_ends().size(); ++seals_)
    extend(run, seals_ == 0 ? 0 : run.seal_ends()[seals_ - 1], run.seal_ends()[seals_]);
}

void Assignment::extend(const octavo_run &run, size_t first_slot, size_t end_slot) {
  std::map<uint32_t, uint64_t> largest;  // elements, by parameter
  for (size_t i = first_slot; i < end_slot; ++i) {
    const octavo_slot &s = run.slots()[i];
    // What a seal emitted never changes: a parameter that has an owner keeps it.
    if (s.shard != OCTAVO_SHARD_WHOLE || owners_[s.owner] != OCTAVO_NONE) continue;
    uint64_t &elements = largest[s.owner];
    elements = std::max(elements, static_cast<uint64_t>(s.rows) * static_cast<uint64_t>(s.cols));
  }
  std::vector<std::pair<uint32_t, uint64_t>> order(largest.begin(), largest.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto &a, const auto &b) { return a.second > b.second; });
  for (const auto &[parameter, elements] : order) {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    owners_[parameter] = static_cast<uint32_t>(least - loads_.begin());
    *least += elements;
  }
}

}  // namespace octavo
