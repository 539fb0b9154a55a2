// The stream that a call runs on, and whether it is being captured into a graph. Found in what
// torch has loaded, so that one library serves torch with CUDA and without.
#pragma once

#include "entry.h"

namespace octavo::core {

// torch's current stream of this device on this thread, as the contract has it (cudaStream_t).
// Null, the default stream, on the CPU and on devices that are neither. Throws.
void *current_stream(const Device &device);

// Whether work on the stream becomes part of a CUDA graph in the place of running. False on the
// CPU.
bool is_captured(const Device &device, void *stream);

}  // namespace octavo::core
