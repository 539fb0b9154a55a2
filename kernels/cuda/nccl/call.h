/* One call of the collective's table, and what is refused before NCCL sees it. */
#pragma once

#include "kernels/check/check.h"
#include "octavo/gradients.h"

namespace octavo::cuda::nccl {

struct Call {
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

uint64_t element_bytes(uint32_t dtype);

/* As octavo_ranks answers where one rank can tell; the text goes to the host. */
octavo_status check_call(const Caller &caller, const Call &c, uint32_t world);
octavo_status check_broadcast(const Caller &caller, uint32_t root, const void *data, uint64_t bytes,
                              uint32_t world);

}  // namespace octavo::cuda::nccl
