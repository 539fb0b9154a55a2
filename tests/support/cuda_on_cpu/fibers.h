// The threads of one block as fibers of one thread of the CPU.
//
// A fiber gives up its turn only at a barrier or in an operation of its warp, until all that it
// waits for have arrived. Where that cannot happen any more, the process ends with a message that
// says which threads wait for what: on a device this would hang, or be undefined.
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace cuda_on_cpu {

// Runs `kernel`, a call of `function`, in every thread of every block of the grid.
void run_grid(const dim3 &grid, const dim3 &block, const void *function,
              const std::function<void()> &kernel);

}  // namespace cuda_on_cpu
