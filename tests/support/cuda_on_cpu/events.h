// Streams that a test holds, so that what is enqueued on them does not end.
//
// Work still happens; what does not come is its end: events that were recorded on a held stream are
// not ready until it is released. For several threads.
#pragma once

#include <cuda_runtime.h>

namespace cuda_on_cpu {

void hold_stream(cudaStream_t stream);
void release_stream(cudaStream_t stream);
// Events and streams that exist, and waits of a stream for an event, in the whole process.
int events_alive();
int streams_alive();
int event_waits();

}  // namespace cuda_on_cpu
