// One rank's side of the collectives. Every rank makes the same calls in the same order.
#ifndef TRAIN_GPT_COMMUNICATOR_H
#define TRAIN_GPT_COMMUNICATOR_H

#include <octavo/octavo.h>

#include <vector>

namespace gpt {

class Communicator {
 public:
  // Alone: a world of one rank, for which no call waits.
  Communicator() = default;
  // The table belongs to the rank and outlives this object.
  Communicator(const octavo_collective *table, uint32_t rank) : table_(table), rank_(rank) {}

  uint32_t rank() const { return rank_; }
  uint32_t world() const { return table_ != nullptr ? table_->world : 1; }
  // For functions of liboctavo that communicate; null when alone.
  const octavo_collective *table() const { return table_; }

  // Each value becomes the sum over ranks in their order, equal on every rank.
  void all_reduce_sum(float *values, uint64_t count) const;
  // The number of each rank, exactly, in their order.
  std::vector<double> gather(double mine) const;
  double mean(double mine) const;
  // What rank 0 passes, on every rank.
  bool root_says(bool mine) const;

 private:
  void run(uint32_t collective, uint32_t dtype, const void *send, uint64_t send_count, void *recv,
           uint64_t recv_count) const;

  const octavo_collective *table_ = nullptr;
  uint32_t rank_ = 0;
};

}  // namespace gpt

#endif
