// A table in front of kernels that puts each call into a stream (cuda_on_cpu/queue.h): it runs when
// somebody waits for it, on copies of its structs, which are overwritten afterwards. Workspaces of
// kernels have garbage before and after a call. Calls of octavo/draft first run what their stream
// holds, then themselves: an order that a device may have, too.
#pragma once

#include "octavo/kernels.h"

namespace octavo::test {

// Gives the calls of `table`, which are those of `below`, to the queue, and shares that with the
// process. Of one table in a process.
void be_late(octavo_kernels &table, const octavo_kernels &below);
// Waits for all that is queued.
void settle_late();

}  // namespace octavo::test
