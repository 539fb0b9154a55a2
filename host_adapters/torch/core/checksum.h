// A checksum of a weight's values, for those that nobody announced to have changed.
#pragma once

#include <cstdint>

#include "view.h"

namespace octavo::core {

// Of the bytes of a matrix on the CPU, in the order of its memory, by torch's threads: equal for
// equal values whatever their number. Never 0, but for a tensor whose rows and columns both have
// gaps, of which none is taken. Reads each element once. Throws when torch cannot run its threads.
uint64_t checksum(View weight);

}  // namespace octavo::core
