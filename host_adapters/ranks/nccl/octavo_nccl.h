/* octavo_nccl.h: an octavo_collective on stock NCCL, for hosts on NVIDIA GPUs without collectives
 * of their own. C11; the library is octavo_nccl, which needs NCCL 2.14 or later of major 2 at run
 * time and links none: libnccl.so.2 is opened when it is first asked for.
 *
 * Bits: bytes are moved by NCCL, sums and maxima are taken here, in the order of the ranks, as
 * octavo_ranks takes them. NCCL's own sum depends on its choice of algorithm, and its maximum drops
 * a NaN. The volume on the wire is that of a ring: 2 (W - 1) / W of the tensor for an all-reduce.
 *
 * Streams: an operation is enqueued on the stream that it is given, and nothing waits for it; the
 * result is there when the stream gets there. Operations on several streams run one after another.
 * While a stream is captured into a graph, deadlines do not count, and the graph is to be replayed
 * between other operations of this communicator, never during them.
 *
 * Failures: a thread of the library asks NCCL for asynchronous errors and watches the deadline.
 * After the first failure the communicator is aborted, streams that wait for it go on with
 * undefined results, and every later call answers OCTAVO_FAILED_DEVICE at once. So: after
 * synchronising, and before results are used for good (end_step, a checkpoint), ask
 * octavo_nccl_check. A call that is refused for its arguments (OCTAVO_INVALID, OCTAVO_UNSUPPORTED)
 * has enqueued nothing; the other ranks wait for this one until their deadline, unless it calls
 * octavo_nccl_abort.
 *
 * Threads: calls through the table come from one thread at a time per communicator, any thread;
 * octavo_nccl_check and octavo_nccl_abort are THREAD_ANY; open and close run alone.
 *
 * fork: CUDA does not survive it. In a child every call answers OCTAVO_WRONG_STATE and touches
 * nothing; open anew after exec.
 */
#ifndef OCTAVO_NCCL_H
#define OCTAVO_NCCL_H

#include "octavo/host.h"
#include "octavo/octavo.h"

/* One rank's communicator. */
typedef struct octavo_nccl octavo_nccl;

/* What rank 0 makes and every rank opens with; how it travels is the host's part. */
typedef struct octavo_nccl_id {
  char bytes[128];
} octavo_nccl_id;

typedef struct octavo_nccl_desc {
  uint32_t size; /* sizeof(octavo_nccl_desc) */
  uint32_t world;
  uint32_t rank;
  int32_t device; /* the CUDA device of this rank */
  const octavo_nccl_id *id;
  const octavo_host
      *host;          /* diagnose gets every text, from any thread; outlives the communicator */
  octavo_str library; /* path of NCCL; empty: "libnccl.so.2" by the usual search */
  /* Memory on the device for parts that are to be summed, equal on every rank; 0: 32 MiB, at least
   * 64 KiB. Longer operations run in pieces. */
  uint64_t scratch_bytes;
  /* Longest time in which no pending operation ends, counted from when it was enqueued or the one
   * before it ended; also of open and close. 0: 10 minutes. Work that the host put on the stream
   * before an operation counts, too. */
  uint32_t deadline_ms;
  uint32_t reserved;
} octavo_nccl_desc;

OCTAVO_EXPORT octavo_status octavo_nccl_get_id(const octavo_host *host, octavo_str library,
                                               octavo_nccl_id *out)
    OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
/* Every rank, at the same time. OCTAVO_NO_RESOURCE: no NCCL, or no memory; OCTAVO_INCOMPATIBLE: a
 * NCCL that is too old, too new, or lacks a function; OCTAVO_FAILED_DEVICE: CUDA, NCCL or another
 * rank failed, or the deadline passed; OCTAVO_INVALID: the desc, or ranks with different
 * scratch_bytes. */
OCTAVO_EXPORT octavo_status octavo_nccl_open(const octavo_nccl_desc *desc,
                                             octavo_nccl **out) OCTAVO_PHASE_SETUP;
/* The same address until close. Null for null. */
OCTAVO_EXPORT const octavo_collective *octavo_nccl_collective(octavo_nccl *c);
/* The same ranks for operands in CPU memory, such as losses and norms: they go through memory of
 * the device, `stream` is ignored, and a call returns when its result is there. */
OCTAVO_EXPORT const octavo_collective *octavo_nccl_host_collective(octavo_nccl *c);
/* OCTAVO_OK, or OCTAVO_FAILED_DEVICE once the communicator has failed or was aborted; asks NCCL,
 * waits for nothing. */
OCTAVO_EXPORT octavo_status octavo_nccl_check(octavo_nccl *c) OCTAVO_THREAD_ANY;
/* Ends what is pending on this rank; the others notice by an error of NCCL or by their deadline. */
OCTAVO_EXPORT void octavo_nccl_abort(octavo_nccl *c) OCTAVO_THREAD_ANY;
/* Every rank. Pending operations end first, within the deadline; then they are aborted. */
OCTAVO_EXPORT void octavo_nccl_close(octavo_nccl *c) OCTAVO_PHASE_SETUP;

#endif
