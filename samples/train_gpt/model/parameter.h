// One trainable tensor with its gradient and its two Adam moments, all fp32; and the random numbers
// that fill it.
//
// A backend may own some of the four in formats of its own; the buffer here is then empty.
#ifndef TRAIN_GPT_PARAMETER_H
#define TRAIN_GPT_PARAMETER_H

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/loops.h"

namespace gpt {

using namespace octavo::standalone;

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

struct Parameter {
  Parameter(std::string name_, int64_t rows_, int64_t cols_, bool decays_)
      : name(std::move(name_)), rows(rows_), cols(cols_), decays(decays_) {}

  size_t count() const { return static_cast<size_t>(rows * cols); }
  void fill_normal(Random &random, double deviation) {
    for (size_t i = 0; i < count(); ++i) value[i] = static_cast<float>(random.normal() * deviation);
  }
  void fill(float constant) { std::fill_n(value.data(), count(), constant); }

  std::string name;
  int64_t rows, cols;
  bool decays;  // whether weight decay applies: matrices yes, biases and norms no
  Buffer<float> value{count()};
  Buffer<float> grad{count()};        // every backward overwrites it
  Buffer<float> exp_avg, exp_avg_sq;  // both moments belong to AdamW, which allocates them
  uint32_t id = OCTAVO_NONE;          // in the Octavo run, once it was added there
};

}  // namespace gpt

#endif
