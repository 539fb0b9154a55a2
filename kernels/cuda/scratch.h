/* kernels/cuda/scratch.h: a little memory of the device for calls that have no workspace.
 *
 * A sum that many blocks share needs a place for its parts. Calls of one stream follow each other,
 * so each stream has a slot of its own; what a call leaves in it no later call reads.
 */
#pragma once

#include <cstdint>

namespace octavo::cuda {

constexpr int kScratchSlots = 64;
constexpr int kScratchParts = 1024;

struct Scratch {
  union {
    double sums[kScratchParts];
    uint64_t counts[kScratchParts];
  };
};

}  // namespace octavo::cuda
