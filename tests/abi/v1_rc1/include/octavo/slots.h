/* octavo/slots.h: how a backend describes the memory it needs, all of which the host owns.
 *
 * Every tensor that outlives a call is a slot. At seal the backend emits slots and, for every
 * object (the session, each parameter, each linear), a list of uses. The host allocates the slots,
 * fills them with `initial`, and passes each object's addresses in every call, as `void *const
 * *slots` in the order in which that object's uses were emitted. Backends remember no address.
 *
 * Host code never reads or writes slot memory on behalf of a backend: only kernels do.
 */
#ifndef OCTAVO_SLOTS_H
#define OCTAVO_SLOTS_H

#include "octavo/tensor.h"

enum {
  OCTAVO_ROLE_WEIGHT = 1,
  OCTAVO_ROLE_MASTER_WEIGHT = 2,
  OCTAVO_ROLE_GRADIENT = 3,
  OCTAVO_ROLE_EXP_AVG = 4,
  OCTAVO_ROLE_EXP_AVG_SQ = 5,
  OCTAVO_ROLE_SCALE = 6,        /* multiplies before the cast; f32 */
  OCTAVO_ROLE_SCALE_INV = 7,    /* multiplies after the cast; lies beside codes */
  OCTAVO_ROLE_AMAX = 8,         /* accumulated maximum of absolute values; f32 */
  OCTAVO_ROLE_AMAX_HISTORY = 9, /* row 0 live, rows 1 .. L-1 from oldest to newest; f32 */
  OCTAVO_ROLE_COUNTER = 10,
  OCTAVO_ROLE_WEIGHT_CACHE = 11, /* quantized weight: recomputable, not saved */
  OCTAVO_ROLE_NONFINITE = 12,    /* 1: an Inf or NaN was cast in this step; f32 [1, 1] */
  OCTAVO_ROLE_OTHER = 13,
  /* Telemetry of casts, f32, combined by SUM and cleared by end_step. SQNR in decibels is
   * 10 log10(SIGNAL / NOISE). */
  OCTAVO_ROLE_SATURATED = 14, /* elements beyond the format's range */
  OCTAVO_ROLE_UNDERFLOW = 15, /* elements that are not 0, but whose code is */
  OCTAVO_ROLE_SIGNAL = 16,    /* sum of squares of the elements */
  OCTAVO_ROLE_NOISE = 17      /* sum of squares of (element - decoded code) */
};

/* Whose slot or list it is. */
enum { OCTAVO_OWNER_SESSION = 1, OCTAVO_OWNER_PARAMETER = 2, OCTAVO_OWNER_LINEAR = 3 };

/* Index into octavo_slot.access. */
enum {
  OCTAVO_VERB_QUANTIZE_WEIGHT = 0, /* gets the parameter's list */
  OCTAVO_VERB_FORWARD = 1,         /* gets the linear's list */
  OCTAVO_VERB_BACKWARD = 2,        /* gets the linear's list */
  OCTAVO_VERB_END_STEP = 3,        /* gets the session's list */
  OCTAVO_VERB_OPTIMIZER_STEP = 4,  /* gets the parameter's list. read_parameter and write_parameter
                                      get it, too: they read or write the slots of the role that
                                      the call names, whatever the access says */
  OCTAVO_VERB_REDUCE = 5           /* gets the parameter's list */
};

/* What a verb does with a slot. A position whose access is NONE holds null, and the backend must
 * not look at it. ACCUMULATE with a null pointer means "do not record" (evaluation). */
enum {
  OCTAVO_ACCESS_NONE = 0,
  OCTAVO_ACCESS_READ = 1,
  OCTAVO_ACCESS_WRITE = 2,     /* every byte is written, the old content does not matter */
  OCTAVO_ACCESS_UPDATE = 3,    /* old content needed; step verbs, and the weight gradient */
  OCTAVO_ACCESS_ACCUMULATE = 4 /* new = combine(old, contribution); f32; one verb per slot */
};

/* How contributions to an ACCUMULATE slot combine; the identity of both is 0. */
enum { OCTAVO_COMBINE_NONE = 0, OCTAVO_COMBINE_MAX = 1, OCTAVO_COMBINE_SUM = 2 };

/* How ranks may share a slot out. */
enum {
  OCTAVO_SHARD_REPLICATED = 0,
  OCTAVO_SHARD_WHOLE = 1, /* this slot may live on one rank, the same for all WHOLE slots of a
                             parameter. That rank runs optimizer_step for it, then the host sends
                             what the step wrote outside of WHOLE slots to the other ranks */
  OCTAVO_SHARD_ROWS = 2   /* no scale crosses rows */
};

enum {
  OCTAVO_SLOT_CHECKPOINT = 1, /* saved and restored bit for bit */
  OCTAVO_SLOT_NATIVE = 2,     /* the host's own tensor: nothing is allocated or counted */
  OCTAVO_SLOT_REDUCE = 4      /* combined over ranks before optimizer_step and end_step */
};

/* One tensor that the host allocates: rows * cols elements, row-major, no padding. */
typedef struct octavo_slot {
  uint32_t size;
  uint32_t kind;       /* OCTAVO_KIND_SLOT */
  uint32_t id;         /* dense in the session, in order of emission, never reused */
  uint32_t owner_kind; /* OCTAVO_OWNER_... */
  uint32_t owner;      /* parameter or linear id; 0 for the session */
  uint32_t role;       /* OCTAVO_ROLE_...; unknown means OTHER */
  uint32_t dtype;
  uint32_t flags;       /* OCTAVO_SLOT_... */
  uint32_t combine;     /* OCTAVO_COMBINE_... */
  uint32_t shard;       /* OCTAVO_SHARD_... */
  uint32_t scale_slot;  /* the slot that holds this one's scale_inv, or OCTAVO_NONE */
  uint32_t granularity; /* of scale_slot */
  int64_t rows;
  int64_t cols;
  double initial;           /* value of every element; 0 for 8-bit and 16-bit dtypes */
  uint8_t access[8];        /* OCTAVO_ACCESS_... by verb; bytes 6 and 7 are reserved */
  octavo_str name;          /* "weight_cache", "x/amax_history": stable, part of checkpoint keys */
  const octavo_str *labels; /* pooled: the object of each of the `cols` columns; else null */
} octavo_slot;

/* One entry of an object's pointer list. A pooled slot in the list of a parameter or linear is the
 * column range [first, first + count); in the session's list it is the whole pool (0, 0). Frozen.
 */
typedef struct octavo_slot_use {
  uint32_t owner_kind; /* whose list */
  uint32_t owner;
  uint32_t slot; /* any slot, whoever owns it: tied weights share theirs */
  uint32_t first;
  uint32_t count;
  uint32_t reserved;
} octavo_slot_use;

/* Receives what a seal emits; a status that is not OCTAVO_OK ends the seal with that status. */
typedef struct octavo_slot_sink {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SLOT_SINK */
  void *ctx;
  octavo_status (*slot)(void *ctx, const octavo_slot *s);
  octavo_status (*use)(void *ctx, const octavo_slot_use *u);
} octavo_slot_sink;

#endif
