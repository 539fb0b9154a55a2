/* octavo/kernels.h: interface "octavo.kernels/1", arithmetic on one kind of device.
 *
 * Implemented by kernels/<device>. Backends fill in the call structs and call the functions through
 * octavo_session_desc.kernels, with octavo_session_desc.kernels_ctx as the first argument. Only
 * kernels access slot memory. No kernel synchronizes or prints. One may allocate and lock at its
 * first call of a kind, never while its stream is captured. Kernels combine
 * with amax, nonfinite and counts atomically: concurrent calls may accumulate into one slot, but
 * not add to one `d` or sum of rows. With OCTAVO_CAPS_DETERMINISTIC, results are the same for any
 * number of threads.
 *
 * Casts, scales, histories, dequantization, packing, copies, sums and prologues are exact to the
 * bit: the headers define them, and kernels/format/activation.h, which CMake's octavo::format has,
 * the polynomials of activations. A NaN of f32, bf16 or f16 in an output may have any bits.
 * Products are exact to the bit with OCTAVO_CAPS_EXACT_GEMM. Otherwise, without fast_accumulation,
 * an element is within (K + 8) * 2^-24 * sum(|a * b|) * a_scale_inv * b_scale_inv of the exact one,
 * before it is rounded to d's dtype, and may depend on the alignment of addresses.
 *
 * Structs of the ABI and lists that a call points to are the caller's, in CPU memory, until the
 * return, also structs of outputs, which are not written; every other pointer is device memory.
 * Whether a call is refused depends on its structs, nulls and the alignment of addresses that it
 * uses, never on device memory. A call that `ability` declines is OCTAVO_UNSUPPORTED, as is a value
 * that the kernels do not know, also in `reserved` and in a field that is 0 or 1. Arguments that do
 * not fit together and numbers outside of their range are OCTAVO_INVALID, as is a call or a
 * question that ends before its last field of minor 0. Which of the two a call gets that breaks
 * several rules, or has an unfit scale or dtype, is not defined. Pointers to no element may be
 * null: n or `bytes` is 0, a workspace of 0 bytes, scales of 0 rows or groups. Where a pointer is
 * stated to be null, or to be of another call, callers pass null; kernels may refuse another value
 * or ignore it. A call with nothing to write is legal.
 *
 * fl32 is one rounding to fp32, to nearest even, with subnormals; nothing is contracted. It
 * holds in every floating-point mode of the calling thread, which is the same afterwards; flags of
 * exceptions may be set. Plain tensors are f32, bf16 or f16, codes are E4M3 or E5M2. Inputs and
 * outputs do not overlap, unless a call allows it. Plain outputs overflow to Inf, but not of casts.
 *
 * Cast: value = fl32(in * in_scale_inv), or `in` where that is null; code =
 * round_to_nearest_even(fl32(value * scale)) in the format, with subnormals. Finite overflow and
 * infinity give the largest finite code, also of f16. NaN becomes 0x7F or 0xFF in both formats of 8
 * bits, 0x7E00 or 0xFE00 in f16, with the sign of the value, or of `in` where the value is NaN. A
 * plain tensor may have a scale_inv, and codes may have none: null is 1.
 *
 * Amax: the maximum absolute value in fp32 before scaling, ignoring NaN; NaN that *amax holds
 * stays. Values mean the product with in_scale_inv, also for `nonfinite`. *amax is +0, positive
 * or NaN before a call, *nonfinite 0 or 1.
 *
 * GEMM: products (exact: each rounded to fp32, which changes none of codes), summed over K in fp32
 * (exact: from +0 in ascending order), without blocks multiplied once by fl32(a_scale_inv *
 * b_scale_inv), then the bias is added, and with `accumulate` the result to d; then one rounding to
 * the output's dtype. With K = 0 the sum is +0, multiplied as
 * every other.
 */
#ifndef OCTAVO_KERNELS_H
#define OCTAVO_KERNELS_H

#include "octavo/backend.h"
#include "octavo/prologue.h"
#include "octavo/rules.h"

#define OCTAVO_KERNELS_ID "octavo.kernels/1"

/* Flags of octavo_kernels_caps. */
enum {
  OCTAVO_CAPS_EXACT_GEMM = 1,   /* products are exact to the bit */
  OCTAVO_CAPS_CAPTURE_SAFE = 2, /* calls may be captured into a graph of the device */
  OCTAVO_CAPS_DETERMINISTIC = 4,
  OCTAVO_CAPS_EMULATED = 8 /* the hardware has no FP8 units */
};

/* What holds for every call on a device, filled in by `describe`. `ability` answers whether the
 * kernels can execute one particular call. */
struct octavo_kernels_caps {
  uint32_t size;
  uint32_t kind;      /* OCTAVO_KIND_KERNELS_CAPS */
  octavo_str id;      /* of the code that runs, "cpu.avx2"; static */
  uint64_t flags;     /* OCTAVO_CAPS_... */
  uint64_t alignment; /* M, N and K of a GEMM with codes must be multiples of it; >= 1 */
  uint64_t pack_rows; /* rows of b in one panel of `pack`; 0 if `pack` is not supported */
};

/* A question to `ability`: can these kernels execute a call on these formats? The answer holds for
 * every out_t, `accumulate`, bias, dtype of d and prologue. The caller zeroes it, sets `call` and:
 *
 *   call                                  flags            dtype and granularity
 *   gemm                                  layout           of a; b_dtype and b_granularity of b
 *   quantize (measuring only: any codes)  flags            of the codes, once for each granularity
 *   quantize_stats                        0                of the codes
 *   dequantize, compute_amax, sum_rows,   0                of `in`; of pack the granularity is
 *     pack                                                   not read
 *   prologue, prologue_quantize           0                of `in`; for the codes, ask of quantize
 *   delayed_scale_update                  history_flags    not read
 *   scale_from_amax, copy                 0                not read
 */
typedef struct octavo_ability {
  uint32_t size;
  uint32_t kind;  /* OCTAVO_KIND_ABILITY */
  uint32_t call;  /* OCTAVO_KIND_GEMM, OCTAVO_KIND_PROLOGUE_CALL, ...: the kind of its struct. Of
                     several functions with one struct all are meant */
  uint32_t flags; /* calls of Adam: 0 */
  uint32_t dtype; /* calls of Adam: of a moment */
  uint32_t granularity; /* of the scales of that tensor; 0 for one scale or none */
  uint32_t b_dtype;
  uint32_t b_granularity;
  /* The answer: */
  uint32_t decision;    /* OCTAVO_DECLINE; OCTAVO_ACCEPT: at the speed of the hardware;
                           OCTAVO_ACCEPT_EMULATED: correct, but without units for these formats; of
                           kernels with OCTAVO_CAPS_EMULATED every call */
  uint32_t scale_order; /* gemm: the fastest order of block scales; ROW_MAJOR is always legal. A
                           table in front replaces one that it does not know by ROW_MAJOR */
  octavo_str evidence;  /* static: why it is not OCTAVO_ACCEPT */
} octavo_ability;

/* Values of octavo_quantize.rounding. */
enum { OCTAVO_ROUND_NEAREST_EVEN = 0 };

/* Flags of octavo_quantize. */
enum {
  OCTAVO_QUANTIZE_KEEP_POSITIVE = 1 /* a value above 0, before `scale`, whose code is +0 gets the
                                       smallest positive code; for second moments of an Adam step */
};

/* Arguments of quantize: out = cast(in * in_scale_inv * scale), out_t = transpose of out, of one
 * dtype: codes or, for a tensor and rows, also f16. Each may be larger than `in`; the padding is
 * written as 0 and does not count towards amax. Without `out` and out_t, which is legal with
 * OCTAVO_PER_TENSOR, only `amax` and `nonfinite` are written; scales, `scale` and `counter` are
 * null, and rule, format_max and eps are as for an output.
 *
 * The granularity of out_scale_inv, or of out_t_scale_inv where that is null, restricts the other
 * arguments:
 *   - OCTAVO_PER_TENSOR: out_scale_inv is not null where there is an output. With RULE_GIVEN the
 *     scale is *scale, or 1 if that is null, and scale_inv is fl32(1 / scale), also of 0, Inf or
 *     NaN; `counter` and eps are ignored. `kept` of the rules is *scale, or 1. Where
 *     out_t_scale_inv is given it gets the same number, also without out_t.
 *   - Block granularities: each block is scaled by the amax of its own elements; one that has only
 *     padding, or no element, counts as zeros. `scale` and `counter` are null. One of the outputs
 *     may have blocks of lines and the other square ones, with sides of one length.
 *     The scale of an output that is null is null.
 *   - OCTAVO_PER_ROW: the same, with whole rows of the output as blocks, by the rules of rows.
 *   - OCTAVO_FLAT_256 (write_parameter of optimizer states): `in` and `out` are dense and have the
 *     same shape; out_t, `scale` and `counter` are null; `rule`, format_max and eps are ignored. */
struct octavo_quantize {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_QUANTIZE */
  void *stream;
  const octavo_tensor *in;           /* [R, C]; also codes: a scale of 1 copies finite ones */
  const float *in_scale_inv;         /* one factor for all of `in`, in device memory; may be null */
  octavo_tensor *out;                /* [>= R, >= C]; may be null */
  octavo_tensor *out_t;              /* [>= C, >= R]; may be null */
  const octavo_scale *out_scale_inv; /* output: scale_inv of `out`, in its shape */
  const float *scale;   /* RULE_GIVEN: the scale; null means 1. Otherwise see `counter` */
  const float *counter; /* null: the rule is applied to `in` (current scaling). Otherwise `scale`,
                           which is not null, is used once *counter >= window, and the rule until
                           then (warm-up) */
  float *amax;          /* accumulated (max); may be null */
  float *nonfinite;     /* set to 1 if `in` contains Inf or NaN, else unchanged; may be null */
  float format_max;     /* M of the rule: the largest value of the format (448, 57344, 65504), for
                           a tensor also divided by 2^margin. 2^-126 to 65504, with blocks (not rows)
                           1 to 65504; not looked at with RULE_GIVEN */
  float window;         /* of `counter`; NaN: the rule in every call */
  uint32_t rule;        /* OCTAVO_RULE_... */
  uint32_t flags;       /* OCTAVO_QUANTIZE_... */
  void *workspace;
  /* The scale_inv of out_t. If null, out_scale_inv applies to both. Required for out_t with rows or
   * blocks, which follow the rows of out_t itself: with lines its codes differ from those of
   * `out`. */
  const octavo_scale *out_t_scale_inv;
  float eps;         /* >= 0, finite: the rule's amax is at least this. *amax is without it */
  uint32_t rounding; /* OCTAVO_ROUND_...; kernels return OCTAVO_UNSUPPORTED for others */
};

/* Arguments of dequantize: out = fl32(in * scale_inv), or out = fl32(out + fl32(in * scale_inv))
 * with `accumulate`, rounded once more to the dtype of `out`, which is plain and has the shape of
 * `in`; with OCTAVO_FLAT_256 both are dense. With a plain `in` and no scale_inv it copies or
 * converts. `out` may be `in` if the dtypes are equal. */
typedef struct octavo_dequantize {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_DEQUANTIZE */
  void *stream;
  const octavo_tensor *in;
  const octavo_scale *scale_inv; /* null means 1 */
  octavo_tensor *out;
  uint32_t accumulate; /* 0 or 1 */
  uint32_t reserved;
} octavo_dequantize;

/* Arguments of quantize_stats, which measures how well codes represent values. All four results are
 * accumulated (sum); each may be null. Padding of `codes` does not count. An element whose value or
 * fl32(code * scale_inv) is not finite counts as saturated, and nowhere else. Counts are exact up
 * to 2^24, and beyond it not below; sums are within 8 units in the last place of the exact ones. */
typedef struct octavo_quantize_stats {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_QUANTIZE_STATS */
  void *stream;
  const octavo_tensor *in;       /* [R, C], plain */
  const octavo_tensor *codes;    /* [>= R, >= C], as written by quantize */
  const octavo_scale *scale_inv; /* of codes, not null; not OCTAVO_FLAT_256 */
  float *saturated; /* number of elements with abs(value) > fl32(scale_inv * largest code * (1 +
                       2^-20)), one rounding: more than rounding of the scale can cause */
  float *underflow; /* number of nonzero elements whose code is 0 or -0 */
  float *signal;    /* sum of squares of the values */
  float *noise;     /* sum of squares of (value - fl32(code * scale_inv)), the difference exact */
  void *workspace;
} octavo_quantize_stats;

/* Arguments of scale_from_amax: scale[i] = rule(fl32(amax[i] / divide_by)), by a rule of tensors
 * other than GIVEN, whose `kept` is kept[i]; scale_inv[i] = fl32(1 / scale[i]). divide_by is finite
 * and above 0. */
typedef struct octavo_scale_from_amax {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SCALE_FROM_AMAX */
  void *stream;
  const float *amax;
  float *scale;     /* may be null */
  float *scale_inv; /* may be null */
  uint64_t n;       /* at most 2^40 */
  float format_max; /* as of octavo_quantize with a tensor */
  float divide_by;  /* 1 if none */
  uint32_t rule;
  uint32_t reserved;
  const float *kept; /* the old scales, may equal `scale`; null means 1 */
} octavo_scale_from_amax;

/* Arguments of compute_amax: amax = max(amax, abs(in * in_scale_inv)), with OCTAVO_PER_TENSOR. */
typedef struct octavo_compute_amax {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COMPUTE_AMAX */
  void *stream;
  const octavo_tensor *in;
  const octavo_scale *in_scale_inv; /* null is 1 */
  float *amax;
  float *nonfinite; /* set to 1 if `in` contains Inf or NaN, else unchanged; may be null */
} octavo_compute_amax;

/* Flags of octavo_delayed_scale_update, and the combinations of the libraries that use it. */
enum {
  OCTAVO_HISTORY_SKIP_ZERO = 1,      /* a column whose amax is 0 at the call is left unchanged,
                                        also its counter */
  OCTAVO_HISTORY_DROP_NONFINITE = 2, /* an amax of Inf or NaN enters the history as 0 */
  OCTAVO_HISTORY_NAN_KEEPS = 4,      /* with use_max, NaN in any row after step 1 keeps the scale */
  OCTAVO_HISTORY_COUNT_FROM_ONE = 8, /* the counter is reset to 1 instead of 0 */
  OCTAVO_HISTORY_TE = 1,             /* Transformer Engine's fused kernel */
  OCTAVO_HISTORY_TE_UNFUSED = 4,     /* its path in Python */
  OCTAVO_HISTORY_MSAMP = 3           /* MS-AMP, with zeros and overflow treated as no observation */
};

/* Arguments of delayed_scale_update, for one pool of n columns. For each column:
 *   1. Row 0 of the history is set to amax.
 *   2. The next amax is chosen: the maximum over all rows, which ignores NaN, or row 0.
 *   3. The history rolls: row i becomes row i + 1 for i = 1 .. length-2, row length-1 becomes row
 *      0, so that rows 1 .. length-1 go from oldest to newest, and row 0 is 0.
 *   4. The scale is computed from the chosen amax by a rule of tensors other than GIVEN, divided by
 *      2^margin: QUOTIENT and POW2 are fl32(fl32(M * 2^-margin) / a), RECIPROCAL divides last (Inf
 *      / 2^margin is Inf, so FLT_MAX), MSAMP subtracts the margin from the exponent before it is
 *      limited. `kept` is the old scale, not divided.
 *   5. amax is set to 0.
 * `history_flags` change what happens to unusual values. */
typedef struct octavo_delayed_scale_update {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_DELAYED_SCALE_UPDATE */
  void *stream;
  float *amax;      /* [1, n] */
  float *history;   /* [length, n] */
  float *scale;     /* [1, n] */
  float *counter;   /* [1, n]: incremented; reset to 0 if amax at the call is not finite; may be
                       null */
  uint64_t n;       /* at most 2^40 */
  uint64_t length;  /* >= 1 */
  float format_max; /* as of octavo_quantize with a tensor, before the margin */
  int32_t margin;   /* 0 to 30; see step 4 */
  uint32_t use_max; /* 1: maximum of the history ("max"); 0: row 0 ("most_recent") */
  uint32_t rule;
  uint32_t history_flags; /* OCTAVO_HISTORY_... */
  uint32_t reserved;
} octavo_delayed_scale_update;

/* Flags of octavo_gemm.layout. A plain operand with one scale or none may have any layout, others
 * those that `ability` accepts, which is asked for every call; scales of rows are then of rows of
 * d. */
enum {
  OCTAVO_GEMM_A_KM = 1, /* a is [K, M] */
  OCTAVO_GEMM_B_KN = 2, /* b is [K, N] */
  /* b was written by `pack`: codes [N, K] with stride K, in memory for N rounded up to
   * caps.pack_rows rows. `a` is codes or bf16. Not with B_KN. The result is
   * bit-identical to the call with the unpacked codes. */
  OCTAVO_GEMM_B_PACKED = 4
};

/* Arguments of gemm: d[M, N] = (a[M, K] b[N, K]^T) * a_scale_inv * b_scale_inv + bias, or d += with
 * `accumulate`.
 *
 * PER_TENSOR and PER_ROW may be combined, also with a plain operand; each element of d uses the
 * scales of its row of a and of b, which has N rows also where it is packed. Block granularities
 * require the same block length along K for a and b, both of them codes, and are not combined with
 * the others. d and bias are plain, of exactly the product's shape. For each block of K, in
 * ascending order, with p the fp32 sum of its products starting from 0: sum = fl32(sum + fl32(p *
 * fl32(a_scale_inv * b_scale_inv))) */
typedef struct octavo_gemm {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GEMM */
  void *stream;
  const octavo_tensor *a;
  const octavo_tensor *b;
  octavo_tensor *d;
  const octavo_tensor *bias;       /* [1, N]; may be null */
  const octavo_scale *a_scale_inv; /* null is 1 */
  const octavo_scale *b_scale_inv;
  void *workspace;            /* workspace_bytes for this call */
  uint32_t accumulate;        /* 0 or 1 */
  uint32_t fast_accumulation; /* 1 allows less than fp32 precision, unless products are exact */
  /* 0: one rounding, after the bias. 1: the product is rounded to d's dtype before the bias is
   * added, and the sum is rounded again (as MS-AMP), also before it is added to d. Without a bias
   * both are the same. */
  uint32_t bias_after;
  uint32_t layout; /* OCTAVO_GEMM_... */
} octavo_gemm;

/* Arguments of sum_rows, out[1, C] = column sums of `in` (db), with OCTAVO_PER_TENSOR. A sum is of
 * fl32(in * in_scale_inv) in fp64, from 0 in ascending order: of runs of 32 rows, of the sums of 8
 * runs, and of the sums of 256 rows. It is rounded once to fp32 and with `accumulate` added to
 * `out`. */
typedef struct octavo_sum {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SUM */
  void *stream;
  const octavo_tensor *in;
  const octavo_scale *in_scale_inv; /* null is 1 */
  void *out;                        /* f32 */
  uint32_t accumulate;              /* 1 adds to `out` */
  uint32_t reserved;
  void *workspace; /* workspace_bytes for this call; null is legal and gives the same bits, but may
                      be slower */
} octavo_sum;

/* Arguments of copy. */
typedef struct octavo_copy {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COPY */
  void *stream;
  void *out;
  const void *in; /* null fills `out` with 0 */
  uint64_t bytes;
} octavo_copy;

/* Arguments of pack, which reorders codes into the order that gemm reads b in: for weights that
 * are used more often than they change. The order is private to the kernels and may differ between
 * CPUs, so never save packed codes; only a gemm with OCTAVO_GEMM_B_PACKED can read them. Each panel
 * of caps.pack_rows rows stays at its place, and all panels have one order. Returns
 * OCTAVO_UNSUPPORTED if caps.pack_rows is 0. */
typedef struct octavo_pack {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PACK */
  void *stream;
  const octavo_tensor *in; /* codes [N, K] */
  octavo_tensor *out;      /* [N rounded up to caps.pack_rows, K], stride K, the dtype of `in`; all
                              is written, padding as they like. As b of a gemm it has N rows */
} octavo_pack;

/* Required: probe_device, open_device, close_device, describe, ability and workspace_bytes. Each
 * other function is a capability; in a session's table a missing one is a stub that returns
 * OCTAVO_UNSUPPORTED (get_extension: null) and reports nothing.
 *
 * A host may open a session with its own table in front of kernels, which for example executes
 * calls later. It answers OCTAVO_UNSUPPORTED to values that its headers do not have, and, writing
 * nothing, OCTAVO_NO_RESOURCE where its queue is full. A backend calls neither probe_device,
 * open_device nor close_device, makes no call that `ability` declines, and none to find out whether
 * it is refused. */
struct octavo_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_KERNELS */
  /* Emits verdicts of OCTAVO_LEVEL_DEVICE, with the meaning that check_session's have, on whether
   * these kernels run on the device, which is not AUTO, without side effects. A CPU has index 0. */
  octavo_status (*probe_device)(octavo_device device, const octavo_verdict_sink *sink)
      OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* For a device that probe_device accepts. On success, *ctx is the context for all calls on the
   * device; free it with close_device. */
  octavo_status (*open_device)(octavo_device device, const octavo_host *host,
                               void **ctx) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  void (*close_device)(void *ctx) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  /* Fills in the capabilities of the device. */
  octavo_status (*describe)(void *ctx,
                            octavo_kernels_caps *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Answers a question. An unknown call, format or flag is declined, so that the status only
   * indicates whether the question could be read. A backend takes every status other than
   * OCTAVO_OK for OCTAVO_DECLINE. */
  octavo_status (*ability)(void *ctx,
                           octavo_ability *question) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* The workspace size of a call. `call` is any call struct of this header, identified by its
   * `kind`; an unknown kind returns OCTAVO_UNSUPPORTED. All structs of the call are there, but
   * `prologue` of an octavo_prologue_call may be null: the size is then enough for every op.
   * Addresses of data and strides are not read, nor whether one is null. A call that would be
   * refused has no size: the answer is its status, or any number. A function of a backend that
   * needs the size passes on a status other than OCTAVO_OK, and adds no diagnostic. The size never
   * decreases when a dimension grows, each 256 more of one add the same bytes to multiples of 256,
   * and f32 operands are enough for bf16 and f16 in any mixture. So a backend can derive an
   * octavo_extent for a sum of calls from two queries; for calls that share a workspace it takes
   * the larger of each coefficient. */
  octavo_status (*workspace_bytes)(void *ctx, const void *call,
                                   uint64_t *bytes) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*quantize)(void *ctx,
                            const octavo_quantize *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*dequantize)(void *ctx,
                              const octavo_dequantize *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*compute_amax)(void *ctx,
                                const octavo_compute_amax *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*scale_from_amax)(void *ctx, const octavo_scale_from_amax *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*delayed_scale_update)(void *ctx, const octavo_delayed_scale_update *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*gemm)(void *ctx, const octavo_gemm *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*sum_rows)(void *ctx, const octavo_sum *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*copy)(void *ctx, const octavo_copy *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*quantize_stats)(void *ctx, const octavo_quantize_stats *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*prologue)(void *ctx,
                            const octavo_prologue_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*prologue_quantize)(void *ctx, const octavo_prologue_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*pack)(void *ctx, const octavo_pack *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  /* The static table of further calls with exactly this id, or null: calls of octavo/draft, and
   * of vendors. Their functions take the same ctx, and their call structs are also valid
   * for `ability` and workspace_bytes. A table in front of kernels that does not hand out one also
   * declines its calls in `ability`. */
  const void *(*get_extension)(void *ctx, octavo_str id)OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
};

#endif
