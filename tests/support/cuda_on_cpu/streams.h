// What streams hold, and in which order it runs.
//
// Work runs as soon as it is enqueued. With Script::lazy it runs only where somebody waits or asks
// for it, in an order among the streams that the seed chooses: whatever no stream, event or
// synchronization orders comes out in any order, as on a device. For several threads.
#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace cuda_on_cpu {

using Work = std::function<void()>;

struct Node {
  Work work;
  std::vector<std::shared_ptr<Node>> after;  // of other streams, and of its own
  bool is_taken = false;
  bool is_done = false;
};
using NodePtr = std::shared_ptr<Node>;

struct Capture;

struct Stream {
  unsigned long long id = 0;
  int device = 0;
  bool is_legacy = false;
  bool is_blocking = true;  // the legacy stream and it wait for each other
  bool is_held = false;     // by a test; see events.h
  bool is_gone = false;     // nobody has a handle any more
  std::deque<NodePtr> queue;
  // What graph.cpp keeps of a stream that is captured; null: it is not.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;  // nodes of the graph that the next one follows
  size_t lane = 0;               // among the streams of the capture
};
using StreamPtr = std::shared_ptr<Stream>;

// Guards streams, events and captures. What has a lock as its argument wants this one, held.
std::mutex &state_mutex();
using Lock = std::unique_lock<std::mutex>;

// Null: there is no such stream (any more). Null and cudaStreamLegacy: the current device's.
StreamPtr find_stream(const Lock &lock, cudaStream_t stream);
// One without a handle, until it is given up; what it holds then still runs.
StreamPtr make_stream(const Lock &lock, int device);
void abandon_stream(const Lock &lock, const StreamPtr &stream);
int streams_alive();

// Behind all that the stream waits for. Null where the work has run, which opens the lock
// meanwhile.
NodePtr append(Lock &lock, const StreamPtr &stream, Work work, std::vector<NodePtr> after = {});
// Runs what the node needs, and maybe more. Null is done.
void finish(Lock &lock, const NodePtr &node);
void finish_stream(Lock &lock, const StreamPtr &stream);
void finish_device(Lock &lock, int device);
// Runs a little; whether the node is done.
bool advance(Lock &lock, const NodePtr &node);
// Forgets what has not run, and begins the order anew.
void reset_streams();
// All that streams hold, and all that one holds: for tests that look at memory of the host which
// kernels wrote, and for libraries that have no work of their own on streams.
void settle();
void settle_stream(cudaStream_t stream);
bool is_idle();  // no stream holds work

// Runs the work behind all that the stream holds, or records it where the stream is captured.
cudaError_t enqueue(cudaStream_t stream, const Work &work);
// Whether the stream's work does not run at once.
bool is_deferred(cudaStream_t stream);
// -1: there is no such stream.
int device_of_stream(cudaStream_t stream);

}  // namespace cuda_on_cpu
