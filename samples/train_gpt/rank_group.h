// Ranks as threads of this program, for data parallel training without a launcher.
#ifndef TRAIN_GPT_RANK_GROUP_H
#define TRAIN_GPT_RANK_GROUP_H

#include <functional>

#include "communicator.h"

namespace gpt {

// The share of one rank when `ranks` share `threads` (0: one per core); at least 1.
uint32_t threads_per_rank(uint32_t threads, uint32_t ranks);

class RankGroup {
 public:
  explicit RankGroup(uint32_t ranks);
  ~RankGroup();
  RankGroup(const RankGroup &) = delete;
  RankGroup &operator=(const RankGroup &) = delete;

  // What rank `rank` communicates through; a group of one rank communicates with nobody.
  Communicator communicator(uint32_t rank) const;

  // Calls body(rank) for every rank at once, each on a thread of its own, and returns when all are
  // done. When bodies throw, the others are woken from their collectives, and the first exception
  // comes out of this call; the group is of no use then.
  void run(const std::function<void(uint32_t rank)> &body);

 private:
  uint32_t count_;
  octavo_ranks *ranks_ = nullptr;
};

}  // namespace gpt

#endif
