// A count that only grows: a rank that was here once is a thread of this process.
#include "sdk/src/ranks/process_ranks.h"

#include <map>
#include <mutex>
#include <set>

namespace octavo {
namespace {

struct ProcessRanks {
  std::mutex mutex;
  std::map<uint32_t, std::set<uint32_t>> seen;  // ranks, by world
  std::set<uint32_t> whole;                     // worlds
};

ProcessRanks &process_ranks() {
  static ProcessRanks ranks;
  return ranks;
}

}  // namespace

void add_process_rank(uint32_t world, uint32_t rank) {
  ProcessRanks &ranks = process_ranks();
  const std::lock_guard lock(ranks.mutex);
  ranks.seen[world].insert(rank);
}

void add_process_world(uint32_t world) {
  ProcessRanks &ranks = process_ranks();
  const std::lock_guard lock(ranks.mutex);
  ranks.whole.insert(world);
}

bool process_has_world(uint32_t world) {
  ProcessRanks &ranks = process_ranks();
  const std::lock_guard lock(ranks.mutex);
  return ranks.whole.count(world) != 0 || ranks.seen[world].size() == world;
}

}  // namespace octavo
