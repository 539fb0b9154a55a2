// One draw for the call, one more for the element and its sign.
#include "gradient_fault.h"

#include <limits>

namespace gpt {
namespace {

// Weights and batches draw from the streams with low numbers. The rank, below 64, comes last.
uint64_t stream_of(uint64_t step, uint64_t rank) {
  return (uint64_t{1} << 62) + step * 64 + rank;
}

}  // namespace

GradientFault::GradientFault(int64_t one_in, uint64_t seed, uint32_t rank)
    : one_in_(one_in), seed_(seed), rank_(rank), random_(seed, stream_of(0, rank)) {}

void GradientFault::start_step(int64_t step) {
  random_ = Random(seed_, stream_of(static_cast<uint64_t>(step), rank_));
}

const float *GradientFault::pass(const float *dy, int64_t count) {
  if (random_.below(one_in_) != 0 || count == 0) return dy;
  copy_.assign(dy, dy + count);
  const int64_t at = random_.below(2 * count);
  const float infinity = std::numeric_limits<float>::infinity();
  copy_[static_cast<size_t>(at / 2)] = at % 2 == 0 ? infinity : -infinity;
  ++injected_;
  return copy_.data();
}

}  // namespace gpt
