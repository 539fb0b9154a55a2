/* One call of an octavo_collective, and what one rank can refuse before any byte moves; for the
 * collectives on NCCL and on MPI. */
#pragma once

#include "kernels/check/check.h"
#include "octavo/host.h"

namespace octavo {

struct CollectiveCall {
  uint32_t collective = OCTAVO_COLLECTIVE_NONE;
  uint32_t dtype = OCTAVO_U8;
  const void *send = nullptr;
  uint64_t send_count = 0;
  void *recv = nullptr;
  uint64_t recv_count = 0;
  void *stream = nullptr;
};

/* "all_gather"; for texts. */
const char *name_of_collective(uint32_t collective);

/* 0: unknown. */
uint64_t element_bytes(uint32_t dtype);

/* As octavo_ranks answers where one rank can tell; the text goes to the host. */
octavo_status check_collective(const Caller &caller, const CollectiveCall &c, uint32_t world);
octavo_status check_broadcast(const Caller &caller, uint32_t root, const void *data, uint64_t bytes,
                              uint32_t world);

}  // namespace octavo
