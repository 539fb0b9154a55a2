/* octavo_mpi.h: an octavo_collective on MPI, for hosts whose ranks are processes with tensors in
 * CPU memory. C11; the library is octavo_mpi, built against the MPI of the machine.
 *
 * Bits: MPI moves bytes; sums and maxima are taken here, in the order of the ranks, as octavo_ranks
 * takes them. MPI's own sum depends on the algorithm it chose. The volume on the wire is that of a
 * ring: 2 (W - 1) / W of the tensor for an all-reduce.
 *
 * Every call first exchanges what each rank asks for, 32 bytes. So a call that one rank is refused
 * for its arguments is refused on every rank, with OCTAVO_INVALID or OCTAVO_UNSUPPORTED as by
 * octavo_ranks; nothing of it was moved, and the communicator works on.
 *
 * Waiting: operations are MPI's nonblocking ones, asked until they end. `stream` is ignored; a call
 * returns when its result is there. An operation that takes longer than the deadline, a process of
 * this machine that ended (asked of the kernel, within 50 ms), an error of MPI and octavo_mpi_abort
 * of any rank are failures: OCTAVO_FAILED_DEVICE, the other ranks get a message, and every later
 * call answers OCTAVO_FAILED_DEVICE at once. The communicator is of no use then, and MPI must not
 * be finalized: end the process.
 *
 * Threads: calls through the table come from one thread at a time per communicator, any thread; a
 * second one at the same time gets OCTAVO_WRONG_STATE. octavo_mpi_check and octavo_mpi_abort are
 * THREAD_ANY; open and close run alone. MPI must offer MPI_THREAD_SERIALIZED. A host that calls MPI
 * itself while a call is in progress needs MPI_THREAD_MULTIPLE.
 *
 * fork: MPI does not survive it. In a child every call answers OCTAVO_WRONG_STATE and touches
 * nothing.
 */
#ifndef OCTAVO_MPI_H
#define OCTAVO_MPI_H

#include "octavo/host.h"
#include "octavo/octavo.h"

/* One rank's communicator. */
typedef struct octavo_mpi octavo_mpi;

typedef struct octavo_mpi_desc {
  uint32_t size;           /* sizeof(octavo_mpi_desc) */
  uint32_t deadline_ms;    /* of one operation, and of open and close each; 0: 10 minutes */
  const octavo_host *host; /* diagnose gets every text; outlives the communicator */
  /* The address of the host's MPI_Comm, of whose processes each is a rank; it is duplicated, and
   * errors of the duplicate are returned, whatever handler the host's own has. Null:
   * MPI_COMM_WORLD. */
  const void *comm;
  /* Memory for parts that are to be summed, and the length of a piece: longer operations run in
   * pieces. Equal on every rank; 0: 32 MiB, at least 64 KiB. */
  uint64_t scratch_bytes;
} octavo_mpi_desc;

/* Every rank, at the same time. Where MPI is not initialized, it is: by a process that a launcher
 * such as mpirun started, with MPI_THREAD_MULTIPLE, and close finalizes it. OCTAVO_WRONG_STATE: no
 * launcher, or MPI was finalized; OCTAVO_UNSUPPORTED: its thread level is too low; OCTAVO_INVALID:
 * the desc, or ranks with different scratch_bytes; OCTAVO_NO_RESOURCE: no memory;
 * OCTAVO_FAILED_DEVICE: MPI or another rank failed, or the deadline passed. */
OCTAVO_EXPORT octavo_status octavo_mpi_open(const octavo_mpi_desc *desc,
                                            octavo_mpi **out) OCTAVO_PHASE_SETUP;
/* The same address until close. Null for null. */
OCTAVO_EXPORT const octavo_collective *octavo_mpi_collective(octavo_mpi *c);
/* OCTAVO_NONE for null. */
OCTAVO_EXPORT uint32_t octavo_mpi_rank(const octavo_mpi *c);
/* OCTAVO_OK, or OCTAVO_FAILED_DEVICE once the communicator has failed or was aborted; waits for
 * nothing.
 */
OCTAVO_EXPORT octavo_status octavo_mpi_check(octavo_mpi *c) OCTAVO_THREAD_ANY;
/* Ends what this rank waits for, and tells the other ranks, which leave what they wait for. */
OCTAVO_EXPORT void octavo_mpi_abort(octavo_mpi *c) OCTAVO_THREAD_ANY;
/* Every rank; waits for the others, within the deadline. After a failure it waits for nobody. */
OCTAVO_EXPORT void octavo_mpi_close(octavo_mpi *c) OCTAVO_PHASE_SETUP;

#endif
