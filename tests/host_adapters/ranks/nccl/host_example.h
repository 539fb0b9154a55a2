/* What host_example.c needs of a program around it. */
#ifndef OCTAVO_TESTS_NCCL_HOST_EXAMPLE_H
#define OCTAVO_TESTS_NCCL_HOST_EXAMPLE_H

#include "host_adapters/ranks/nccl/octavo_nccl.h"
#include "octavo/draft/reduction.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The program's launcher: MPI, a TCP store, a file; and its streams. */
struct launcher {
  void *ctx;
  uint32_t rank, world;
  int32_t local_rank;
  void (*send_from_rank_0)(void *ctx, void *data, size_t bytes);
  int (*synchronize)(void *ctx, void *stream); /* 0: fine */
};

octavo_status open_ranks(const struct launcher *l, const octavo_host *host, octavo_str library,
                         octavo_nccl **out);

struct step {
  octavo_run *run;
  octavo_store *store;
  const octavo_parameter_item *items;
  uint64_t count;
  void *send, *recv, *state, *stream;
};
octavo_status combine_gradients(const struct launcher *l, octavo_nccl *ranks, const struct step *s);
octavo_status open_again(const struct launcher *l, const octavo_host *host, octavo_str library,
                         octavo_nccl **ranks);

#ifdef __cplusplus
}
#endif

#endif
