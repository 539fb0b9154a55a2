// The operands of a collective and one call of it, as tests of every implementation need them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "octavo/octavo.h"

namespace octavo::test {

using Values = std::vector<float>;

inline octavo_status run(const octavo_collective &c, uint32_t collective, const Values &send,
                         Values &recv) {
  return c.run(c.ctx, collective, OCTAVO_F32, send.data(), send.size(), recv.data(), recv.size(),
               nullptr);
}

struct Sizes {
  size_t send;
  size_t recv;
};

// `unit` elements, times the world where the collective splits or joins.
inline Sizes sizes(uint32_t collective, size_t unit, size_t world) {
  switch (collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: return {unit * world, unit * world};
    case OCTAVO_COLLECTIVE_ALL_GATHER: return {unit, unit * world};
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return {unit * world, unit};
    default: return {unit, unit};
  }
}

inline std::vector<uint32_t> bits(const Values &v) {
  std::vector<uint32_t> b(v.size());
  if (!v.empty()) std::memcpy(b.data(), v.data(), v.size() * sizeof(float));
  return b;
}

// Values of mixed sizes, so that the order of a sum shows in its last bits; with `special`, some
// are NaN, infinite or -0.
inline Values random_values(std::mt19937 &random, size_t count, bool special) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 12);
  Values v(count);
  for (float &x : v) {
    x = std::ldexp(normal(random), exponent(random));
    if (!special || random() % 5 != 0) continue;
    const float odd[] = {std::numeric_limits<float>::quiet_NaN(), -0.0f, 0.0f,
                         std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity()};
    x = odd[random() % 5];
  }
  return v;
}

}  // namespace octavo::test
