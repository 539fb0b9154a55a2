/* octavo/slots.h: how a backend describes the memory it needs. The host owns all of it.
 *
 * Every tensor that outlives a call is a slot. At seal, the backend emits its slots and, for every
 * object (the session, each parameter, each linear), a list of slot uses. The host allocates the
 * slots and fills them with `initial`. Every call passes the addresses of one object's slots as
 * `void *const *slots`, in the order of the emitted uses of that object; an empty list may be null.
 * A backend must not keep an address after the call.
 *
 * Only kernels read or write memory on behalf of a backend: slots, tensors, `saved` and workspaces,
 * also on a CPU. A verb touches what its accesses state and nothing else: a host may protect the
 * rest during the call. A pool is a slot of the session with labels, a history also: its columns
 * belong to parameters or linears, whose name is the label. (slot name, label) identifies a column
 * in a session and over ranks, so pools of parameters and of linears have different names.
 *
 * Checkpoints: a host saves the slots with OCTAVO_SLOT_CHECKPOINT, and its own tensors, directly
 * after end_step: accumulators are empty then. Loaded into a session with the same objects, in the
 * same order and seals, whose other slots have their initial values, they continue the run. The key
 * of one is parameter/<name>/<slot name>, linear/<name>/<slot name> or session/<slot name>. Where a
 * slot before has that key, such as a pool of an earlier seal, the first of "@2", "@3", ... is
 * appended that makes a new one.
 */
#ifndef OCTAVO_SLOTS_H
#define OCTAVO_SLOTS_H

#include "octavo/tensor.h"

enum {
  OCTAVO_ROLE_WEIGHT = 1,
  OCTAVO_ROLE_MASTER_WEIGHT = 2,
  OCTAVO_ROLE_GRADIENT = 3,
  OCTAVO_ROLE_EXP_AVG = 4, /* the first state of an optimizer, of any rule: a momentum also */
  OCTAVO_ROLE_EXP_AVG_SQ = 5,
  OCTAVO_ROLE_SCALE = 6,     /* multiplier before the cast; f32 */
  OCTAVO_ROLE_SCALE_INV = 7, /* multiplier after the cast; accompanies codes */
  OCTAVO_ROLE_AMAX = 8,      /* maximum absolute value, accumulated; f32 */
  /* f32 [L, n]: a scale follows from the amax of L steps. Row 0 is live and 0 after end_step, rows
   * 1 .. L-1 go from oldest to newest. */
  OCTAVO_ROLE_AMAX_HISTORY = 9,
  OCTAVO_ROLE_COUNTER = 10,
  OCTAVO_ROLE_WEIGHT_CACHE = 11, /* quantized weight, in any shape; recomputable, not saved */
  OCTAVO_ROLE_NONFINITE = 12, /* 1 if an Inf or NaN was cast since the last end_step, which clears
                              it; for one that was not cast 0 or 1. f32 [1, 1] with REDUCE and MAX,
                              emitted once in a session. Casts may saturate Inf, so a host skips the
                              step of the weights if this is not 0 on any rank, or dw or db of the
                              step is not finite. end_step follows all the same */
  OCTAVO_ROLE_OTHER = 13,
  /* Telemetry of casts: f32, combined by SUM, cleared by end_step. The SQNR in decibels is
   * 10 log10(SIGNAL / NOISE). */
  OCTAVO_ROLE_SATURATED = 14, /* number of elements outside the format's range */
  OCTAVO_ROLE_UNDERFLOW = 15, /* number of nonzero elements whose code is 0 */
  OCTAVO_ROLE_SIGNAL = 16,    /* sum of squares of the elements */
  OCTAVO_ROLE_NOISE = 17      /* sum of squares of (element - decoded code) */
};

/* The kind of object that owns a slot or a list. */
enum { OCTAVO_OWNER_SESSION = 1, OCTAVO_OWNER_PARAMETER = 2, OCTAVO_OWNER_LINEAR = 3 };

/* Verbs: the functions of a backend that take slots. Index into octavo_slot.access. Each comment
 * names the object whose list the verb receives. */
enum {
  OCTAVO_VERB_QUANTIZE_WEIGHT = 0, /* parameter */
  OCTAVO_VERB_FORWARD = 1,         /* linear */
  OCTAVO_VERB_BACKWARD = 2,        /* linear */
  OCTAVO_VERB_END_STEP = 3,        /* session */
  OCTAVO_VERB_OPTIMIZER_STEP = 4,  /* parameter; read_parameter and write_parameter also receive
                                      this list, and access the slots of the role named in the call
                                      (octavo/draft/optimizer.h) regardless of `access` */
  OCTAVO_VERB_REDUCE = 5,          /* parameter */
  OCTAVO_VERB_LIMIT = 32           /* verbs of later interfaces take the numbers below it */
};

/* How a verb uses a slot; not looked at where the backend lacks its interface. With NONE the host
 * passes null, and the backend does not look. A null entry with ACCUMULATE means "do not record"
 * and is legal in every call: a host that evaluates passes it, since no flag implies it. A slot
 * that is not native and that no verb writes has its initial value for good. */
enum {
  OCTAVO_ACCESS_NONE = 0,
  OCTAVO_ACCESS_READ = 1,
  OCTAVO_ACCESS_WRITE = 2,  /* writes every byte, of a pool in the call's columns, and does
                               not read the old content */
  OCTAVO_ACCESS_UPDATE = 3, /* reads and writes; verbs of PHASE_STEP and the weight gradient only.
                               end_step has UPDATE; WRITE also where it only clears */
  OCTAVO_ACCESS_ACCUMULATE = 4 /* new = combine(old, contribution); f32; one verb per slot, but for
                                  NONFINITE, which every verb that casts sets */
};

/* How contributions to an ACCUMULATE slot are combined. 0 is the identity of both operations. The
 * last bits of a SUM depend on the order of concurrent calls; training uses none. */
enum { OCTAVO_COMBINE_NONE = 0, OCTAVO_COMBINE_MAX = 1, OCTAVO_COMBINE_SUM = 2 };

/* How a slot may be distributed over ranks. */
enum {
  OCTAVO_SHARD_REPLICATED = 0,
  OCTAVO_SHARD_WHOLE = 1 /* may be stored on one rank only, the same one for all WHOLE slots of a
                             parameter. That rank runs optimizer_step for the parameter; the host
                             then sends what the step wrote to other slots to the other ranks */
};

enum {
  OCTAVO_SLOT_CHECKPOINT = 1, /* saved, by one of the ranks that have the same object, and restored
                                 on each without a change. A rank that adds an object which others
                                 have copies its slots and columns from one */
  /* A tensor of the host: not allocated, not counted as slot memory. It need not exist but in calls
   * that have an access to it, at any address (octavo/shard.h: gathered weights), and one without
   * an access need not be emitted. Role WEIGHT or GRADIENT: the parameter's, dense. A weight or
   * gradient that is not native needs octavo.optimizer/2, and a trained weight of a linear that is
   * not native a gradient that is not native either: hosts refuse the seal otherwise. */
  OCTAVO_SLOT_NATIVE = 2,
  OCTAVO_SLOT_REDUCE = 4, /* combined, before optimizer_step and end_step, over the ranks that
                             have the same object, by name, with equal keys, and other rows of
                             its data; of a pool each column, by label (SUM may count rows again);
                             a slot of the session without labels over all ranks. NaN stays NaN.
                             Without it each rank has its own value, until one is restored. The
                             amax of a weight needs it only if ranks have other rows of it.
                             OCTAVO_VERB_REDUCE is another thing: the reduction of gradients */
  OCTAVO_SLOT_PACKED = 8  /* codes in the order of the kernels' `pack`, which only they know, in
                             rows that are rounded up already; octavo_run_codes reads them. Not
                             with CHECKPOINT or NATIVE */
};

/* A tensor that the host allocates: rows * cols elements, at least one, row-major unless PACKED,
 * without padding. */
typedef struct octavo_slot {
  uint32_t size;
  uint32_t kind;       /* OCTAVO_KIND_SLOT */
  uint32_t id;         /* counts from 0 within the session, in order of emission; never reused */
  uint32_t owner_kind; /* OCTAVO_OWNER_... */
  uint32_t owner;      /* parameter or linear id; 0 for the session */
  uint32_t role;       /* OCTAVO_ROLE_...; treat an unknown value as OTHER */
  uint32_t dtype;
  uint32_t flags;       /* OCTAVO_SLOT_... */
  uint32_t combine;     /* OCTAVO_COMBINE_... */
  uint32_t shard;       /* OCTAVO_SHARD_... */
  uint32_t scale_slot;  /* id of the slot with the scale_inv of this one, not a pool; also of a
                           later one of the seal, or OCTAVO_NONE */
  uint32_t granularity; /* of scale_slot */
  int64_t rows;
  int64_t cols;
  double initial; /* initial value of every element, one that the dtype has; with fewer than 32
                     bits it is 0, and all bytes are 0 */
  uint8_t access[OCTAVO_VERB_LIMIT]; /* OCTAVO_ACCESS_... indexed by OCTAVO_VERB_... */
  octavo_str name;          /* "weight_cache", "x/amax_history"; stable, used in checkpoint keys */
  const octavo_str *labels; /* of a pool: the name of the parameter or linear of each column,
                               [cols]; else null */
} octavo_slot;

/* One entry of an object's slot list. For a pool, the entry of a parameter or linear is the column
 * range [first, first + count): it has the address of column `first`, and such a pool has one row.
 * The entry of the session is the whole pool, as (0, 0), as is the entry of a slot without labels.
 * The session's list needs no slot that end_step has no access to. Frozen. */
typedef struct octavo_slot_use {
  uint32_t owner_kind; /* the object whose list this entry belongs to */
  uint32_t owner;      /* as in octavo_slot: 0 for the session */
  uint32_t slot; /* any slot emitted before, also of another owner: tied weights share slots */
  uint32_t first;
  uint32_t count;
  uint32_t reserved;
} octavo_slot_use;

/* Receives what a seal emits; texts and labels are valid during the call. A status other than
 * OCTAVO_OK aborts the seal, which returns it. */
typedef struct octavo_slot_sink {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SLOT_SINK */
  void *ctx;
  octavo_status (*slot)(void *ctx, const octavo_slot *s);
  octavo_status (*use)(void *ctx, const octavo_slot_use *u);
} octavo_slot_sink;

#endif
