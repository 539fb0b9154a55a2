/* octavo/kernels.h: interface "octavo.kernels/1", arithmetic on one kind of device.
 *
 * Implemented by kernels/<device>, called by backends through octavo_session_desc.kernels with
 * octavo_session_desc.kernels_ctx as first argument. Backends build the call structs. Kernels are
 * the only code that touches slot memory. None allocates, synchronises or prints; all are
 * deterministic for any number of threads when the table states OCTAVO_CAPS_DETERMINISTIC.
 *
 * Numbers, exactly (kernels/format is the one place that defines them).
 *
 * Cast: c = round_to_nearest_even(fl32(v * scale)) in the format, subnormals kept; finite overflow
 * and infinity give the largest finite code, NaN stays NaN.
 *
 * Amax: the maximum of fl32 absolute values before scaling, NaN ignored.
 *
 * GEMM: exact products of codes, an fp32 sum over K in ascending order, then one multiplication by
 * fl32(a_scale_inv * b_scale_inv), then the bias, then one rounding to the output's dtype.
 */
#ifndef OCTAVO_KERNELS_H
#define OCTAVO_KERNELS_H

#include "octavo/backend.h"
#include "octavo/prologue.h"
#include "octavo/rules.h"

#define OCTAVO_KERNELS_ID "octavo.kernels/1"

/* Bits of octavo_kernels_caps.flags. */
enum {
  OCTAVO_CAPS_GEMM_K_CONTIGUOUS_ONLY = 1,
  OCTAVO_CAPS_CAPTURE_SAFE = 2,
  OCTAVO_CAPS_DETERMINISTIC = 4,
  OCTAVO_CAPS_EMULATED = 8,          /* no FP8 units in the hardware */
  OCTAVO_CAPS_ATOMIC_ACCUMULATE = 16 /* two calls in flight may accumulate into one slot */
};

/* Filled by describe. */
struct octavo_kernels_caps {
  uint32_t size;
  uint32_t kind;          /* OCTAVO_KIND_KERNELS_CAPS */
  octavo_str id;          /* "cpu.avx2": static */
  uint64_t dtypes;        /* OR of OCTAVO_DTYPE_BIT */
  uint64_t granularities; /* bit g for granularity g */
  uint64_t flags;         /* OCTAVO_CAPS_... */
  uint64_t alignment;     /* every size of an FP8 GEMM must be a multiple of it; 1: any */
  uint64_t pack_rows;     /* rows of b in one panel of `pack`; 0: these kernels pack nothing */
};

/* Bits of octavo_quantize.flags. */
enum {
  OCTAVO_QUANTIZE_KEEP_POSITIVE = 1 /* a value above 0 never becomes code 0 but the smallest code:
                                       for second moments, see OCTAVO_ADAM_KEEP_POSITIVE */
};

/* out = cast(in * in_scale_inv * scale), out_t = its transpose. out may be larger than in: the
 * padding is written as 0 and does not count in amax. A rule that finds no usable amax (0, Inf,
 * NaN) keeps *scale, or 1 where scale is null. With an out_scale_inv of granularity OCTAVO_FLAT_256
 * or OCTAVO_EXPANDED_128 (write_parameter of optimizer states) in and out have one shape and are
 * dense, out_t, scale and counter are null, and rule and format_max are not looked at. With a block
 * granularity scale and counter are null and every block has the amax of its own elements; a block
 * of padding has that of zeros. OCTAVO_PER_ROW is the same with whole rows as blocks, and takes any
 * rule but OCTAVO_RULE_GIVEN. */
typedef struct octavo_quantize {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_QUANTIZE */
  void *stream;
  const octavo_tensor *in;           /* [R, C] */
  const float *in_scale_inv;         /* null: in is plain */
  octavo_tensor *out;                /* [>= R, >= C] or null */
  octavo_tensor *out_t;              /* [>= C, >= R] or null */
  const octavo_scale *out_scale_inv; /* written: 1 / scale, travels with the codes */
  const float *scale;                /* RULE_GIVEN: read, null: 1. Else see counter */
  const float
      *counter;     /* null: the rule is applied to in (current scaling). Else: *counter >= window
                       reads scale, below it the rule is applied (warm-up on the device) */
  float *amax;      /* accumulated (max), or null */
  float *nonfinite; /* set to 1 when in holds an Inf or NaN, else left; or null */
  float format_max; /* 448, 57344: M of the rule */
  float window;
  uint32_t rule;  /* OCTAVO_RULE_... */
  uint32_t flags; /* OCTAVO_QUANTIZE_... */
  void *workspace;
  /* Of out_t. Null: out_scale_inv serves both. Block granularities: needed with out_t; the blocks
   * of out_t run along its own rows, so with 1X128 and 1X32 its codes are not those of out. */
  const octavo_scale *out_t_scale_inv;
  float eps; /* an amax below it counts as it; 0: none */
  uint32_t reserved;
} octavo_quantize;

/* out = in * scale_inv; added to out when accumulate is 1. With a plain `in` and no scale_inv it is
 * a copy or a change of dtype; out may be in when their dtypes are equal. */
typedef struct octavo_dequantize {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_DEQUANTIZE */
  void *stream;
  const octavo_tensor *in;
  const octavo_scale *scale_inv; /* null: 1 */
  octavo_tensor *out;
  uint32_t accumulate;
  uint32_t reserved;
} octavo_dequantize;

/* How well codes represent values; all four are accumulated (sum), each may be null. Padding of
 * `codes` does not count. An Inf or NaN counts as saturated and enters neither sum of squares. */
typedef struct octavo_quantize_stats {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_QUANTIZE_STATS */
  void *stream;
  const octavo_tensor *in;       /* [R, C], plain */
  const octavo_tensor *codes;    /* [>= R, >= C], as quantize wrote them */
  const octavo_scale *scale_inv; /* of codes */
  float *saturated; /* elements with abs(value) > scale_inv * largest code, beyond the 2^-20 that
                       the roundings of a scale can make */
  float *underflow; /* elements that are not 0, but whose code is */
  float *signal;    /* squares of the values */
  float *noise;     /* squares of (value - code * scale_inv) */
  void *workspace;
} octavo_quantize_stats;

/* prologue: out = prologue. prologue_quantize: quantize of what prologue would have written to
 * quantize->in, which has a shape and a dtype, but no data: the same bits as both in sequence. */
typedef struct octavo_prologue_call {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PROLOGUE_CALL */
  void *stream;
  const octavo_prologue *prologue;
  octavo_tensor *out;              /* [M, K], plain; prologue only */
  const octavo_quantize *quantize; /* prologue_quantize only; its workspace is not used */
  void *workspace;
} octavo_prologue_call;

/* scale[i] = rule(amax[i] / divide_by), scale_inv[i] = 1 / scale[i]; amax that is 0, Inf or NaN
 * gives kept[i]. */
typedef struct octavo_scale_from_amax {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SCALE_FROM_AMAX */
  void *stream;
  const float *amax;
  float *scale;     /* or null */
  float *scale_inv; /* or null */
  uint64_t n;
  float format_max;
  float divide_by; /* 1: none */
  uint32_t rule;
  uint32_t reserved;
  const float *kept; /* the old scales, may be `scale`; null: 1 */
} octavo_scale_from_amax;

/* amax = max(amax, abs(in * in_scale_inv)). */
typedef struct octavo_compute_amax {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COMPUTE_AMAX */
  void *stream;
  const octavo_tensor *in;
  const octavo_scale *in_scale_inv; /* null: plain */
  float *amax;
  float *nonfinite; /* or null */
} octavo_compute_amax;

/* One pool of n columns. For each column: history row 0 takes amax, the next amax is chosen
 * (maximum of all rows, or row 0), rows roll so that 1 .. length-1 run from oldest to newest, row 0
 * becomes 0, the scale follows from the rule, amax becomes 0. A chosen amax that is 0, Inf or NaN
 * keeps the scale; a scale that overflows becomes FLT_MAX. With QUOTIENT and POW2 a live value of 0
 * changes nothing at all, not even the history (TE's fused kernel); with RECIPROCAL it rolls. With
 * MSAMP a live value of 0 changes nothing, and one that is Inf or NaN enters the history as 0; with
 * MSAMP04 both do. */
typedef struct octavo_delayed_scale_update {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_DELAYED_SCALE_UPDATE */
  void *stream;
  float *amax;    /* [1, n] */
  float *history; /* [length, n] */
  float *scale;   /* [1, n] */
  float *counter; /* [1, n] or null: advanced by 1, back to 0 when amax was not finite */
  uint64_t n;
  uint64_t length; /* >= 1 */
  float format_max;
  int32_t margin;   /* scale is divided by 2^margin */
  uint32_t use_max; /* 1: "max" over the history, 0: "most_recent" */
  uint32_t rule;
} octavo_delayed_scale_update;

/* Bits of octavo_gemm.layout. Plain operands may have any layout. */
enum {
  OCTAVO_GEMM_A_KM = 1, /* a is [K, M]; codes only without OCTAVO_CAPS_GEMM_K_CONTIGUOUS_ONLY */
  OCTAVO_GEMM_B_KN = 2, /* b is [K, N], likewise */
  /* b is what `pack` wrote: codes [N, K] with stride K, though the memory holds N rounded up to
   * caps.pack_rows; not together with B_KN. Beside codes or bf16 in a; the bits are those of the
   * call with the codes that were packed. */
  OCTAVO_GEMM_B_PACKED = 4
};

/* d[M, N] = (a[M, K] b[N, K]^T) * a_scale_inv * b_scale_inv + bias; added to d when accumulate.
 * PER_TENSOR and PER_ROW may be mixed; the multiplier of an element is that of its rows of a and b.
 * Block granularities, both of the same block length along K: for each block of K in ascending
 * order, p = the fp32 sum of its products from 0 on, then sum = fl32(sum + fl32(p *
 * fl32(a_scale_inv
 * * b_scale_inv))). */
typedef struct octavo_gemm {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GEMM */
  void *stream;
  const octavo_tensor *a;
  const octavo_tensor *b;
  octavo_tensor *d;
  const octavo_tensor *bias;       /* [1, N] or null */
  const octavo_scale *a_scale_inv; /* null: plain */
  const octavo_scale *b_scale_inv; /* null: plain */
  void *workspace;                 /* workspace_bytes of this call */
  uint32_t accumulate;
  uint32_t fast_accumulation; /* 1 permits less than fp32 accumulation */
  /* 1: the product is rounded to d's dtype, then the bias is added and the sum is rounded again
   * (MS-AMP). 0: one rounding, after the bias. */
  uint32_t bias_after;
  uint32_t layout; /* OCTAVO_GEMM_... */
} octavo_gemm;

/* One tensor of an Adam step; a null scale_inv means a plain tensor. Frozen. */
typedef struct octavo_adam_item {
  octavo_tensor weight;
  octavo_tensor gradient;
  octavo_tensor exp_avg;
  octavo_tensor exp_avg_sq;
  float *weight_scale_inv;
  const float *gradient_scale_inv;
  float *exp_avg_scale_inv;
  float *exp_avg_sq_scale_inv;
  int32_t *step;      /* advanced by 1 unless skipped */
  const float *hyper; /* f32[OCTAVO_HYPER_COUNT] of optimizer.h */
} octavo_adam_item;

/* octavo_adam_step.decay_mode */
enum {
  OCTAVO_DECAY_DECOUPLED = 0, /* AdamW: w *= 1 - lr * weight_decay, before the update */
  OCTAVO_DECAY_L2 = 1,        /* Adam: weight_decay * w is added to the gradient */
  OCTAVO_DECAY_L2_MSAMP04 = 2 /* as L2, but moments with a scale are stored without the decay */
};
/* Bits of octavo_adam_step.flags. */
enum {
  OCTAVO_ADAM_KEEP_POSITIVE = 1 /* an exp_avg_sq above 0 is never stored as code 0 but as the
                                   smallest code: 0 would turn the next update into m / eps */
};

typedef struct octavo_adam_step {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_ADAM_STEP */
  void *stream;
  const octavo_adam_item *items;
  uint64_t count;
  const float *skip; /* null or 0: step */
  void *workspace;
  uint32_t rule;       /* of the new per-tensor scales */
  uint32_t decay_mode; /* OCTAVO_DECAY_... */
  /* Of exp_avg_scale_inv and exp_avg_sq_scale_inv where they are not null. PER_TENSOR: the rule's.
   * FLAT_256: E4M3 codes, fl32(max(amax, 1e-12) / 448) per block, code of fl32(value / scale_inv)
   * (torchao's low-bit optimizers). EXPANDED_128: E4M3 codes, see tensor.h. */
  uint32_t state_granularity;
  uint32_t flags; /* OCTAVO_ADAM_... */
} octavo_adam_step;

/* out[i] = cast(sum over shards of decode(codes[shard * shard_stride + i])), in shard order. */
typedef struct octavo_sum_quantized {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SUM_QUANTIZED */
  void *stream;
  const void *codes;
  void *out;
  uint64_t count; /* elements of one shard */
  uint64_t shards;
  uint64_t shard_stride; /* elements */
  float *saturated;      /* accumulated (sum): elements that left the range; or null */
  uint32_t dtype;
  float count_as; /* what one of them adds to *saturated, one element to *added; 0: 1 */
  float *added;   /* accumulated (sum): count; or null */
} octavo_sum_quantized;

/* sum_rows: out[1, C] = column sums over the rows of in (db). sum_of_squares: *out += squares. */
typedef struct octavo_sum {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SUM */
  void *stream;
  const octavo_tensor *in;
  const octavo_scale *in_scale_inv; /* null: plain */
  void *out;                        /* f32 */
  uint32_t accumulate;              /* sum_rows: 1 adds to out */
  uint32_t reserved;
} octavo_sum;

typedef struct octavo_copy {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_COPY */
  void *stream;
  void *out;
  const void *in; /* null: fill with 0 */
  uint64_t bytes;
} octavo_copy;

/* out[i] = in[i] * factor. */
typedef struct octavo_scale_values {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SCALE_VALUES */
  void *stream;
  float *out;
  const float *in;
  uint64_t n;
  float factor;
  uint32_t reserved;
} octavo_scale_values;

/* The automatic pre-scale of a gradient reduction (FP8-LM, arXiv 2310.18313, section 2.2):
 * *prescale is halved when *saturated / *added is above `threshold`, else multiplied by `growth`,
 * then limited to [low, high]; with *added 0 it stays. Both counts become 0. */
typedef struct octavo_prescale_update {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PRESCALE_UPDATE */
  void *stream;
  float *prescale;
  float *saturated; /* elements that left the range since the last update, of all ranks */
  float *added;     /* elements that were added up since then */
  float threshold;
  float growth;
  float low;
  float high;
} octavo_prescale_update;

/* What an optimizer step multiplies gradients by, without a host that reads the device:
 * norm = fl32(factor * sqrt(the f64 sum of sum[0 .. sum_count) in ascending order)), skip = 1 where
 * nonfinite is 1 or norm is Inf or NaN, else 0, and grad_scale[i] = factor * min(1, max_norm /
 * (norm + 1e-6)), torch's clip_grad_norm_; max_norm 0 does not clip. */
typedef struct octavo_gradient_scale {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_GRADIENT_SCALE */
  void *stream;
  const float *sum; /* squares of gradients, f32 [sum_count] */
  uint64_t sum_count;
  const float *nonfinite;   /* or null */
  float *norm;              /* or null */
  float *skip;              /* or null */
  float *const *grad_scale; /* count addresses on the device; the array itself is the host's */
  uint64_t count;
  float factor; /* 1 / loss scale, 1 / ranks; 1: none */
  float max_norm;
} octavo_gradient_scale;

/* Codes in the order in which a gemm reads them as b: for weights that are multiplied more often
 * than they change. The order is the kernels' own matter, and may differ from CPU to CPU, so packed
 * codes are kept in memory only; nothing but a gemm with OCTAVO_GEMM_B_PACKED reads them.
 * OCTAVO_UNSUPPORTED where caps.pack_rows is 0. */
typedef struct octavo_pack {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PACK */
  void *stream;
  const octavo_tensor *in; /* codes [N, K] */
  octavo_tensor *out;      /* [N rounded up to caps.pack_rows, K], stride K, the dtype of in; all of
                              it is written */
} octavo_pack;

struct octavo_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_KERNELS */
  octavo_status (*probe_device)(octavo_device device, const octavo_verdict_sink *sink)
      OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  octavo_status (*open_device)(octavo_device device, const octavo_host *host,
                               void **ctx) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  void (*close_device)(void *ctx) OCTAVO_THREAD_CONTROL OCTAVO_PHASE_SETUP;
  octavo_status (*describe)(void *ctx,
                            octavo_kernels_caps *out) OCTAVO_THREAD_ANY OCTAVO_PHASE_SETUP;
  /* Bytes of `workspace` that a call needs; `call` is any call struct of this header, told apart by
   * its kind (OCTAVO_UNSUPPORTED: one that these kernels do not know). Only shapes, dtypes and
   * flags are looked at, no data. The answer never falls when a
   * size grows and, over multiples of 64, is affine in each size: so a backend can state the sum of
   * its calls as an octavo_extent from two questions. */
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
  octavo_status (*adam_step)(void *ctx,
                             const octavo_adam_step *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*sum_quantized)(void *ctx, const octavo_sum_quantized *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*sum_rows)(void *ctx, const octavo_sum *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*sum_of_squares)(void *ctx,
                                  const octavo_sum *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*copy)(void *ctx, const octavo_copy *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*scale_values)(void *ctx, const octavo_scale_values *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*prescale_update)(void *ctx, const octavo_prescale_update *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*quantize_stats)(void *ctx, const octavo_quantize_stats *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*prologue)(void *ctx,
                            const octavo_prologue_call *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*prologue_quantize)(void *ctx, const octavo_prologue_call *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
  octavo_status (*gradient_scale)(void *ctx, const octavo_gradient_scale *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*pack)(void *ctx, const octavo_pack *c) OCTAVO_THREAD_STREAM OCTAVO_PHASE_HOT;
};

#endif
