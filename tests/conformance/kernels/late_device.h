// A device that runs its work late, on streams and in graphs: when somebody waits for it, and no
// earlier.
#ifndef OCTAVO_TESTS_CONFORMANCE_KERNELS_LATE_DEVICE_H
#define OCTAVO_TESTS_CONFORMANCE_KERNELS_LATE_DEVICE_H

#include <functional>

#include "faulty.h"
#include "octavo/draft/streams.h"

namespace octavo::test::late {

// What queue_work makes of the sound table: faults change copies of these.
const octavo_kernels &kernels();
const octavo_memory &memory();
const octavo_streams &streams();

// The table that get_extension answers; faults may replace functions of it.
octavo_streams &offered_streams();

void push(void *stream, std::function<void()> work);
bool is_capturing(void *stream);
// The newest work of the default stream first.
void run_backwards();
int32_t current_device();
void set_current_device(int32_t index);
// Runs all that is queued.
void flush();

}  // namespace octavo::test::late

#endif
