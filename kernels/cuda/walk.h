/* kernels/cuda/walk.h: the grid of a kernel that walks through a matrix along its rows. */
#pragma once

#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/launch.h"

namespace octavo::cuda {

struct Extent {
  int64_t rows;
  int64_t cols;
};

/* Blocks of kThreads threads: a power of two of them along a row, which they take in packs of
 * `width` elements, the others down. */
struct Walk {
  dim3 blocks;
  dim3 threads;
};

inline Walk walk_of(const Context &context, const Extent &e, int64_t width,
                    int64_t most_blocks = 65535) {
  const int64_t packs = divide_up(e.cols, width);
  unsigned across = 1;
  while (across < kThreads && across < packs) across *= 2;
  const unsigned down = kThreads / across;
  const int64_t limit = blocks_for(context, most_blocks);
  const auto at_least_one = [](int64_t wanted, int64_t most) {
    return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
  };
  const unsigned x = at_least_one(divide_up(packs, across), limit);
  const unsigned y = at_least_one(divide_up(e.rows, down), limit / x);
  return {dim3(x, y), dim3(across, down)};
}

}  // namespace octavo::cuda
