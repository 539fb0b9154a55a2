// The streams of the runtime inside a plugin, for a program or a framework's side of the device:
// memory that kernels still use, events, and waiting. A stream is its handle, null the legacy one.
// While the queue is lazy, work runs late and in any order that streams and events allow, otherwise
// at once.
#pragma once

#include <cstdint>

namespace cuda_on_cpu {

struct Mark;  // a place in a stream, as an event records it

struct Queue {
  void *(*new_stream)();  // one that does not wait for the legacy stream; for good
  // Behind all that the stream holds.
  void (*append)(void *stream, void (*work)(void *argument), void *argument);
  void (*finish)(void *stream);
  void (*finish_all)();
  bool (*is_idle)();               // no stream holds work
  void (*be_lazy)(uint64_t seed);  // from now on; 0: not. Finishes all first
  bool (*is_lazy)();
  Mark *(*mark)(void *stream);
  void (*wait)(void *stream, const Mark *mark);  // what follows in the stream is behind the mark
  bool (*is_done)(const Mark *mark);
  void (*finish_mark)(const Mark *mark);
  void (*forget)(Mark *mark);
};

// Of a plugin that has called share_queue() in this process; null: there is none. Libraries that do
// not see each other's symbols find it by way of the environment.
const Queue *shared_queue();
void share_queue();

}  // namespace cuda_on_cpu
