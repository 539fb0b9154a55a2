/* octavo/shard.h: interface "octavo.shard/1", weights that ranks gather as codes.
 *
 * Optional. For a host that keeps the rows of a weight on several ranks and gathers them before a
 * pass (FSDP). It gathers codes instead of values, which are fewer bytes, and no rank casts rows of
 * another one:
 *
 *   measure   the amax of the rank's own rows of each weight. The host then combines the amax of
 *             all weights over the ranks, with one all-reduce MAX
 *   cast      the rank's own rows to a packet of codes. The host gathers the packets of all ranks
 *   place     the packets into the slots of the weight, in place of quantize_weight
 *
 * place leaves the bytes in the slots that quantize_weight leaves for the whole weight. The weight
 * itself need not exist then: only after a place, forward and backward may have null for its native
 * slot, apart from calls with OCTAVO_FORWARD_EVALUATION where the slot has an access for FORWARD.
 */
#ifndef OCTAVO_SHARD_H
#define OCTAVO_SHARD_H

#include "octavo/backend.h"

#define OCTAVO_SHARD_ID "octavo.shard/1"

/* How the rows of a weight [N, K] are divided, and what that needs. Rank r has the rows from
 * r * rows on, at most `rows` of them; the last ranks may have fewer or none. */
typedef struct octavo_shard_plan {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SHARD_PLAN */
  uint32_t parameter;
  uint32_t reserved;
  int64_t rows; /* >= 1 */
  /* The answer: */
  uint64_t packet_bytes; /* of each rank; a multiple of OCTAVO_ALIGNMENT */
  uint64_t cast_workspace;
  uint64_t place_workspace;
} octavo_shard_plan;

/* Arguments of measure and cast. */
typedef struct octavo_shard_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SHARD_CALL */
  uint32_t parameter;
  uint32_t flags; /* 0 */
  void *stream;
  int64_t rows;               /* as in the plan */
  const octavo_tensor *shard; /* [0 to rows, K]: the rank's own rows, in the parameter's dtype */
  float *amax; /* f32 [1, 1]; measure: accumulated (max), at first 0; cast: combined over ranks */
  /* For cast only. */
  void *const
      *slots;   /* the parameter's list, with that of NONFINITE to flag the rank's own rows. Others
                   that quantize_weight writes or accumulates, and the weight's, may be null */
  void *packet; /* plan.packet_bytes, at a multiple of OCTAVO_ALIGNMENT; those of a rank
                   without rows stay as they are */
  void *workspace; /* plan.cast_workspace bytes */
} octavo_shard_call;

/* Arguments of place. It sets no NONFINITE, which `cast` did for its rows. */
typedef struct octavo_gathered_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GATHERED_CALL */
  uint32_t parameter;
  uint32_t flags; /* 0 */
  void *stream;
  int64_t rows;   /* as in the plan */
  uint32_t world; /* number of packets; world * rows >= N */
  uint32_t reserved;
  const void *packets; /* those of all ranks, in their order, without gaps; aligned as one */
  const float *amax;   /* combined over ranks */
  void *const *slots;  /* the parameter's list; the entry of the native weight may be null */
  void *workspace;     /* plan.place_workspace bytes */
} octavo_gathered_call;

/* Required: every function. */
typedef struct octavo_shard {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SHARD */
  /* Returns OCTAVO_UNSUPPORTED, with a diagnostic that says why, if codes of such shards would
   * differ from those of the whole weight (a block of scales with rows on two ranks), if place
   * could not record the telemetry of such a cast, if calls of training read the weight itself, if
   * the kernels of the session decline calls that it takes, or for every division where a method
   * has none; the host then gathers values. Ask again after a seal that adds a linear of it. */
  octavo_status (*plan)(const octavo_session *s,
                        octavo_shard_plan *plan) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*measure)(const octavo_session *s,
                           const octavo_shard_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*cast)(const octavo_session *s,
                        const octavo_shard_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*place)(const octavo_session *s,
                         const octavo_gathered_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_shard;

#endif
