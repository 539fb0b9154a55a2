/* octavo/draft/streams.h: streams and graphs of a device, without the device's library.
 *
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 *
 * Hosts make streams and graphs with their framework; `octavo plugin verify` has no framework and
 * uses this table. `stream` is what the calls of kernels take: null is the default stream. A
 * stream may be used with every ctx of its device. A stream from make_stream waits for no other
 * one, also not for the default stream, without `order`.
 */
#ifndef OCTAVO_DRAFT_STREAMS_H
#define OCTAVO_DRAFT_STREAMS_H

#include "octavo/kernels.h"

#define OCTAVO_STREAMS_ID "octavo.kernels.streams/1"

#define OCTAVO_KIND_STREAMS 0x8032u

/* The answer of current_device, and a value of set_current_device, for a thread without a device.
 */
#define OCTAVO_NO_CURRENT_DEVICE (-1)

/* The answer of octavo_kernels.get_extension to OCTAVO_STREAMS_ID. Required: every function, but
 * those that may be null. */
typedef struct octavo_streams {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_STREAMS */
  octavo_status (*make_stream)(void *ctx, void **out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* `stream` may be null. No work may be queued on it. */
  void (*destroy_stream)(void *ctx, void *stream) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Work that is queued on `stream` from now on starts after all work on `before`. */
  octavo_status (*order)(void *ctx, void *stream,
                         void *before) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  /* Waits for all that is queued on `stream`, and for nothing else. */
  octavo_status (*wait)(void *ctx, void *stream) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Queues run(arg), which the CPU executes in its turn: what is behind it waits for its return. It
   * makes no call of the device. */
  octavo_status (*call_host)(void *ctx, void *stream, void (*run)(void *arg),
                             void *arg) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  /* Graphs, of kernels with OCTAVO_CAPS_CAPTURE_SAFE; all null where the device has none. Between
   * begin_capture and end_capture the calls of this thread on `stream` are recorded and do not run;
   * *graph is what was recorded. end_capture fails, and sets *graph to null, if a call did what a
   * capture forbids. launch queues all of it, any number of times. destroy_graph: no launch of it
   * may be queued, and `graph` may be null. */
  octavo_status (*begin_capture)(void *ctx, void *stream) OCTAVO_THREAD_STREAM OCTAVO_PHASE_SETUP;
  octavo_status (*end_capture)(void *ctx, void *stream,
                               void **graph) OCTAVO_THREAD_STREAM OCTAVO_PHASE_SETUP;
  octavo_status (*launch)(void *ctx, void *graph,
                          void *stream) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  void (*destroy_graph)(void *ctx, void *graph) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* The index of the calling thread's device, for libraries that have such a state; both null for
   * others. A call of kernels works on the device of its ctx, whichever is current, and leaves the
   * state as it was. set_current_device answers OCTAVO_UNSUPPORTED for a state that a thread cannot
   * be in. */
  octavo_status (*current_device)(void *ctx, int32_t *index) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*set_current_device)(void *ctx,
                                      int32_t index) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
} octavo_streams;

#endif
