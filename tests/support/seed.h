// The seed of random inputs: a test's own, so that it repeats, or another one in each round of
// tests/soak.py.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace octavo::test {

// `own` without OCTAVO_SEED; else one that differs for each pair of the two.
inline uint64_t seed_or(uint64_t own) {
  const char *round = std::getenv("OCTAVO_SEED");
  return round == nullptr ? own : own + 1000003 * std::strtoull(round, nullptr, 10);
}

}  // namespace octavo::test
