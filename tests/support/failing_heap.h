// Makes one allocation of this process fail, whoever asks: liboctavo, the C library, a plugin.
//
// For programs that link failing_heap.cpp, whose malloc takes the place of the C library's. Counts
// from arm() on, all threads together.
#pragma once

#include <cstdint>

namespace octavo::test {

// The allocation number `which`, counted from 1, and the `count` - 1 after it fail; 0: none.
void arm_heap(int64_t which, int64_t count = 1);
// Ends the counting; how many allocations were asked for since arm_heap.
int64_t disarm_heap();

}  // namespace octavo::test
