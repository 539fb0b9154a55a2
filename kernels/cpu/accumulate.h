/* kernels/cpu/accumulate.h: accumulators that many threads and calls may feed at once.
 *
 * A maximum is the same in any order. A sum is not, so a call adds to a shared sum once, after its
 * own part was added up in a fixed order.
 */
#pragma once

#include <atomic>

#include "kernels/cpu/context.h"
#include "kernels/format/bits.h"

namespace octavo {

/* *target = max(*target, value) for value >= 0. */
inline void accumulate_max(float *target, float value) {
  std::atomic_ref<float> shared(*target);
  float seen = shared.load(std::memory_order_relaxed);
  while (value > seen && !shared.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

inline void accumulate_sum(float *target, float value) {
  std::atomic_ref<float> shared(*target);
  float seen = shared.load(std::memory_order_relaxed);
  while (!shared.compare_exchange_weak(seen, seen + value, std::memory_order_relaxed)) {
  }
}

/* The statistics of one call, collected from all of its threads. */
class SharedStats {
 public:
  void add(const ValueStats &stats) {
    int32_t seen = amax_bits_.load(std::memory_order_relaxed);
    while (stats.amax_bits > seen &&
           !amax_bits_.compare_exchange_weak(seen, stats.amax_bits, std::memory_order_relaxed)) {
    }
    if (stats.nonfinite) nonfinite_.store(true, std::memory_order_relaxed);
  }

  float amax() const { return bits_float(amax_bits_.load(std::memory_order_relaxed)); }

  bool nonfinite() const { return nonfinite_.load(std::memory_order_relaxed); }

  /* Adds what was seen to a call's accumulators, either of which may be null. */
  void publish(float *amax_target, float *nonfinite_target) const {
    if (amax_target != nullptr) accumulate_max(amax_target, amax());
    if (nonfinite_target != nullptr && nonfinite()) {
      accumulate_max(nonfinite_target, 1.0f);
    }
  }

 private:
  std::atomic<int32_t> amax_bits_ = 0;
  std::atomic<bool> nonfinite_ = false;
};

/* Merges b into a, for the statistics of one thread. */
inline void merge(ValueStats *a, const ValueStats &b) {
  a->amax_bits = b.amax_bits > a->amax_bits ? b.amax_bits : a->amax_bits;
  a->nonfinite = a->nonfinite || b.nonfinite;
}

}  // namespace octavo
