// Ranks as threads of the test, and a collective that counts what a rank sends.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/support/rank_threads.h"

namespace octavo::test {

// Calls body(rank, its collective) on a thread of its own for every rank. A rank whose body fails
// ends the others' waiting; returns what each answered.
inline std::vector<octavo_status> run_ranks(
    uint32_t world, const std::function<octavo_status(uint32_t, const octavo_collective *)> &body) {
  RankThreads ranks(world);
  return ranks.run([&](uint32_t rank, const octavo_collective &c) {
    const octavo_status status = body(rank, &c);
    if (status != OCTAVO_OK) octavo_ranks_abort(ranks.get());
    return status;
  });
}

// Forwards to a rank's collective. What a rank sends, by the usual algorithms: of all-to-all the
// parts of the others; of all-gather its own part to each of the others; an all-reduce as
// reduce-scatter and all-gather, 2 (W - 1) / W of the tensor, rounded up.
class CountingCollective {
 public:
  explicit CountingCollective(const octavo_collective *inner) : inner_(inner), table_(*inner) {
    table_.ctx = this;
    table_.run = [](void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                    uint64_t send_count, void *recv, uint64_t recv_count,
                    void *stream) -> octavo_status {
      auto &self = *static_cast<CountingCollective *>(ctx);
      const uint64_t world = self.inner_->world;
      const uint64_t bytes = send_count * (OCTAVO_DTYPE_BITS(dtype) / 8);
      switch (collective) {
        case OCTAVO_COLLECTIVE_ALL_TO_ALL: self.sent_ += bytes / world * (world - 1); break;
        case OCTAVO_COLLECTIVE_ALL_GATHER: self.sent_ += bytes * (world - 1); break;
        case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX:
        case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM:
          self.sent_ += (2 * (world - 1) * bytes + world - 1) / world;
          break;
        default: ADD_FAILURE() << "collective " << collective << " is not counted"; break;
      }
      return self.inner_->run(self.inner_->ctx, collective, dtype, send, send_count, recv,
                              recv_count, stream);
    };
    table_.broadcast = nullptr;  // would go uncounted
  }
  CountingCollective(const CountingCollective &) = delete;
  CountingCollective &operator=(const CountingCollective &) = delete;

  const octavo_collective *table() const { return &table_; }
  uint64_t sent() const { return sent_; }

 private:
  const octavo_collective *inner_;
  octavo_collective table_;
  uint64_t sent_ = 0;
};

}  // namespace octavo::test
