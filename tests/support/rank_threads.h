// Runs one function per rank, each in a thread of its own, over the in-process collectives.
//
// Expectations belong on the calling thread: the function returns what there is to be checked.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "octavo/octavo.h"

namespace octavo::test {

class RankThreads {
 public:
  explicit RankThreads(uint32_t world) : world_(world) {
    EXPECT_EQ(octavo_ranks_open(world, &ranks_), OCTAVO_OK);
  }
  ~RankThreads() { octavo_ranks_close(ranks_); }
  RankThreads(const RankThreads &) = delete;
  RankThreads &operator=(const RankThreads &) = delete;

  using Body = std::function<octavo_status(uint32_t rank, const octavo_collective &c)>;
  // What every rank returned.
  std::vector<octavo_status> run(const Body &body) {
    std::vector<octavo_status> answers(world_, OCTAVO_INTERNAL);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world_; ++rank)
      threads.emplace_back([&, rank] { answers[rank] = body(rank, *collective(rank)); });
    for (std::thread &t : threads) t.join();
    return answers;
  }

  uint32_t world() const { return world_; }
  octavo_ranks *get() { return ranks_; }
  const octavo_collective *collective(uint32_t rank) {
    return octavo_ranks_collective(ranks_, rank);
  }

 private:
  uint32_t world_;
  octavo_ranks *ranks_ = nullptr;
};

}  // namespace octavo::test
