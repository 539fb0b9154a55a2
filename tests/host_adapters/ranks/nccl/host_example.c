/* A host in plain C that uses octavo_nccl.h: the code of docs/nccl.md. */
#include "tests/host_adapters/ranks/nccl/host_example.h"

octavo_status open_ranks(const struct launcher *l, const octavo_host *host, octavo_str library,
                         octavo_nccl **out) {
  octavo_nccl_id id = {{0}};
  octavo_status status = OCTAVO_OK;
  if (l->rank == 0) status = octavo_nccl_get_id(host, library, &id);
  l->send_from_rank_0(l->ctx, &status, sizeof(status));
  if (status != OCTAVO_OK) return status; /* on every rank */
  l->send_from_rank_0(l->ctx, &id, sizeof(id));
  octavo_nccl_desc desc = {0};
  desc.size = sizeof(desc);
  desc.world = l->world;
  desc.rank = l->rank;
  desc.device = l->local_rank;
  desc.id = &id;
  desc.host = host;
  desc.library = library; /* {0}: libnccl.so.2 */
  desc.deadline_ms = 120000;
  return octavo_nccl_open(&desc, out);
}

octavo_status combine_gradients(const struct launcher *l, octavo_nccl *ranks,
                                const struct step *s) {
  const octavo_collective *c = octavo_nccl_collective(ranks);
  octavo_status status =
      octavo_reduce_gradients(s->run, s->items, s->count, c, s->send, s->recv, s->state, s->stream);
  if (status == OCTAVO_OK) status = octavo_store_reduce(s->store, c, s->stream);
  /* All of it is enqueued; the optimizer's step may be, too. What it wrote is good when the stream
   * got there and no rank was lost on the way. */
  if (status == OCTAVO_OK && l->synchronize(l->ctx, s->stream) != 0) status = OCTAVO_FAILED_DEVICE;
  if (status == OCTAVO_OK) status = octavo_nccl_check(ranks);
  if (status != OCTAVO_OK) octavo_nccl_abort(ranks); /* the others need not wait for this one */
  return status;
}

/* After a failure, on every rank, once the launcher has brought them together: the weights and the
 * optimizer's state then come from the last checkpoint. */
octavo_status open_again(const struct launcher *l, const octavo_host *host, octavo_str library,
                         octavo_nccl **ranks) {
  octavo_nccl_abort(*ranks);
  octavo_nccl_close(*ranks);
  *ranks = NULL;
  return open_ranks(l, host, library, ranks);
}
