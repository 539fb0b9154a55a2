// The stream that a call runs on, and whether it is being captured into a graph. Found in what
// torch has loaded, so that one library serves torch with CUDA and without.
#pragma once

#include "entry.h"

namespace octavo::core {

// torch's current stream of this device on this thread, as its owner has it: a cudaStream_t on
// CUDA, elsewhere what the device's guard gives as its native handle. Null, the default stream, on
// the CPU and where the guard gives none. Throws, also for another stream of such a guard.
void *current_stream(const Device &device);

// Whether work on the current stream becomes part of a CUDA graph instead of running.
bool is_captured(const Device &device);

}  // namespace octavo::core
