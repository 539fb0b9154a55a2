// Thin calls of octavo_collective; a status that is not OCTAVO_OK becomes an exception.
#include "communicator.h"

#include <stdexcept>
#include <string>

namespace gpt {

void Communicator::run(uint32_t collective, uint32_t dtype, const void *send, uint64_t send_count,
                       void *recv, uint64_t recv_count) const {
  const octavo_status status =
      table_->run(table_->ctx, collective, dtype, send, send_count, recv, recv_count, nullptr);
  if (status != OCTAVO_OK) {
    throw std::runtime_error("collective " + std::to_string(collective) + " of rank " +
                             std::to_string(rank_) + " answered status " + std::to_string(status));
  }
}

void Communicator::all_reduce_sum(float *values, uint64_t count) const {
  if (table_ == nullptr) return;
  run(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, values, count, values, count);
}

std::vector<double> Communicator::gather(double mine) const {
  std::vector<double> all(world(), mine);
  // As bytes, since collectives have no f64.
  if (table_ != nullptr) {
    run(OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, &mine, sizeof mine, all.data(),
        sizeof mine * all.size());
  }
  return all;
}

double Communicator::mean(double mine) const {
  double sum = 0.0;
  for (const double one : gather(mine)) sum += one;
  return sum / static_cast<double>(world());
}

bool Communicator::root_says(bool mine) const {
  return gather(mine ? 1.0 : 0.0).front() != 0.0;
}

}  // namespace gpt
