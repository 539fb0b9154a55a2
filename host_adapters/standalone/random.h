// Random numbers, and gradients that are infinite by chance: the same for a seed on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace octavo::standalone {

// The same on every machine and with every standard library, unlike the distributions of <random>.
class Random {
 public:
  // Streams with different numbers are independent of each other.
  Random(uint64_t seed, uint64_t stream) : state_(mix(seed) ^ mix(~stream)) {}

  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }
  // In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // In [0, bound).
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(uniform() * static_cast<double>(bound));
  }
  // Mean 0, deviation 1: Box-Muller.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  // The finalizer of splitmix64: a bijection whose every output bit depends on every input bit.
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// An infinite gradient now and then, to see whether the training recovers from it. Of all backward
// calls of linear layers, one in N on average gets a dy with one infinite element. A generator with
// the run's seed chooses the call and the element.
class GradientFault {
 public:
  // Ranks have faults of their own, each at other calls.
  GradientFault(int64_t one_in, uint64_t seed, uint32_t rank)
      : one_in_(one_in), seed_(seed), rank_(rank) {}

  // Before the backward calls of a step. Faults depend on the step alone, not on what came before,
  // so a training that goes on from a checkpoint meets the same ones. Weights and batches draw from
  // the streams with low numbers; the rank, below 64, comes last.
  void start_step(int64_t step) {
    random_ = Random(seed_, (uint64_t{1} << 62) + static_cast<uint64_t>(step) * 64 + rank_);
  }
  // dy itself, or a copy of its `count` elements with one of them replaced; valid until the next
  // call. The caller's dy stays as it is, so what flows past the layer is not touched.
  const float *pass(const float *dy, int64_t count) {
    if (random_.below(one_in_) != 0 || count == 0) return dy;
    copy_.assign(dy, dy + count);
    const int64_t at = random_.below(2 * count);
    const float infinity = std::numeric_limits<float>::infinity();
    copy_[static_cast<size_t>(at / 2)] = at % 2 == 0 ? infinity : -infinity;
    ++injected_;
    return copy_.data();
  }
  int64_t injected() const { return injected_; }

 private:
  int64_t one_in_;
  uint64_t seed_, rank_;
  Random random_{0, 0};
  std::vector<float> copy_;
  int64_t injected_ = 0;
};

}  // namespace octavo::standalone
