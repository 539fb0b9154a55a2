// What tests/soak.py changes in a test: the seed of random inputs, in each round another one, and
// the stride through a list that is too long for every run.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace octavo::test {

// `own` without OCTAVO_SEED; else one that differs for each pair of the two.
inline uint64_t seed_or(uint64_t own) {
  const char *round = std::getenv("OCTAVO_SEED");
  return round == nullptr ? own : own + 1000003 * std::strtoull(round, nullptr, 10);
}

// Every how-many-th case: `own` without OCTAVO_STRIDE.
inline int64_t stride_or(int64_t own) {
  const char *given = std::getenv("OCTAVO_STRIDE");
  return given == nullptr ? own : std::strtoll(given, nullptr, 10);
}

}  // namespace octavo::test
