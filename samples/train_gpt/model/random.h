// Random numbers that are the same on every machine and with every standard library.
//
// The distributions of <random> are implementation defined, so equal seeds would not mean equal
// runs.
#ifndef TRAIN_GPT_RANDOM_H
#define TRAIN_GPT_RANDOM_H

#include <cmath>
#include <cstdint>
#include <numbers>

namespace gpt {

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

}  // namespace gpt

#endif
