// The exception that counts is the first one: those of the ranks that were woken only follow it.
#include "rank_group.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace gpt {

uint32_t threads_per_rank(uint32_t threads, uint32_t ranks) {
  const uint32_t all = threads != 0 ? threads : std::thread::hardware_concurrency();
  return std::max<uint32_t>(all / ranks, 1);
}

RankGroup::RankGroup(uint32_t ranks) : count_(ranks) {
  if (ranks > 1 && octavo_ranks_open(ranks, &ranks_) != OCTAVO_OK) {
    throw std::runtime_error("octavo_ranks_open failed for " + std::to_string(ranks) + " ranks");
  }
}

RankGroup::~RankGroup() {
  if (ranks_ != nullptr) octavo_ranks_close(ranks_);
}

Communicator RankGroup::communicator(uint32_t rank) const {
  return ranks_ == nullptr ? Communicator()
                           : Communicator(octavo_ranks_collective(ranks_, rank), rank);
}

void RankGroup::run(const std::function<void(uint32_t rank)> &body) {
  if (ranks_ == nullptr) {
    body(0);
    return;
  }
  std::mutex mutex;
  std::exception_ptr first;
  auto fail = [&] {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!first) first = std::current_exception();
    }
    octavo_ranks_abort(ranks_);
  };
  auto guarded = [&](uint32_t rank) {
    try {
      body(rank);
    } catch (...) {
      fail();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (uint32_t rank = 0; rank < count_; ++rank) threads.emplace_back(guarded, rank);
  } catch (...) {
    fail();  // no thread for this rank: the others must not wait for it
  }
  for (std::thread &thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace gpt
