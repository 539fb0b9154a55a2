// The sizes of a collective's operands, and one call of it, as tests of every implementation need
// them.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace octavo::test
