/* octavo/draft/msamp.h: values and kernels that MS-AMP's levels need.
 * Provisional, as all of octavo/draft: the id and the numbers change when anything of it changes.
 */
#ifndef OCTAVO_DRAFT_MSAMP_H
#define OCTAVO_DRAFT_MSAMP_H

#include "octavo/draft/adam.h"

#define OCTAVO_MSAMP_KERNELS_ID "octavo.kernels.msamp/1"

#define OCTAVO_KIND_PRESCALE_UPDATE 0x8000u
#define OCTAVO_KIND_SUM_QUANTIZED 0x8015u
#define OCTAVO_KIND_SCALE_VALUES 0x8016u
#define OCTAVO_KIND_MSAMP_KERNELS 0x8018u

/* A rule, as MS-AMP 0.4.0: OCTAVO_RULE_MSAMP, but an infinite amax gives 1 / old scale, and a
 * quotient that overflows gives an infinite scale. An exponent below -126 gives 2^-127, or 0. */
#define OCTAVO_RULE_MSAMP04 0x8000u

/* An octavo_adam_step.decay_mode, as MS-AMP 0.4.0: OCTAVO_DECAY_L2, but scaled moments are stored
 * without the decay. */
#define OCTAVO_DECAY_L2_MSAMP04 0x8000u

/* A granularity of optimizer states, grouped as with OCTAVO_FLAT_256: E4M3 codes with f32
 * [groups of 128, 3]: scale_inv, exponent k, center c.
 * value = sign(code) * pow(abs(code) * scale_inv, 1 / k) * c
 * (dynamic range expansion; COAT, arXiv 2410.19313, section 4) */
#define OCTAVO_EXPANDED_128 0x8000u

/* Arguments of sum_quantized: out[i] = cast(sum over shards of decode(codes[shard * shard_stride +
 * i])), in shard order. */
typedef struct octavo_sum_quantized {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_SUM_QUANTIZED */
  void *stream;
  const void *codes;
  void *out;
  uint64_t count; /* number of elements of one shard */
  uint64_t shards;
  uint64_t shard_stride; /* in elements */
  float *saturated;      /* accumulated (sum): number of elements out of range; may be null */
  uint32_t dtype;
  float count_as;  /* what each element adds to *saturated and *added; 0 means 1 */
  float *added;    /* accumulated (sum): number of elements; may be null */
  void *workspace; /* workspace_bytes for this call; null is legal, but may be slower */
} octavo_sum_quantized;

/* Arguments of scale_values: out[i] = in[i] * factor. */
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

/* Arguments of prescale_update, the automatic scaling of a gradient reduction
 * (FP8-LM, arXiv 2310.18313, section 2.2). *prescale is halved if *saturated / *added > threshold
 * and multiplied by `growth` otherwise, then clamped to [low, high], 0 < low <= high < infinity. It
 * is unchanged if *added is 0. Both counts are reset to 0. */
typedef struct octavo_prescale_update {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_PRESCALE_UPDATE */
  void *stream;
  float *prescale;
  float *saturated; /* number of elements out of range since the last update, over all ranks */
  float *added;     /* number of elements summed since the last update */
  float threshold;
  float growth;
  float low;
  float high;
} octavo_prescale_update;

/* What octavo_kernels.get_extension returns for OCTAVO_MSAMP_KERNELS_ID. Required: every
 * function. */
typedef struct octavo_msamp_kernels {
  uint32_t size;
  uint32_t kind; /* OCTAVO_KIND_MSAMP_KERNELS */
  octavo_status (*sum_quantized)(void *ctx, const octavo_sum_quantized *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*scale_values)(void *ctx, const octavo_scale_values *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
  octavo_status (*prescale_update)(void *ctx, const octavo_prescale_update *c)
      OCTAVO_THREAD_STREAM OCTAVO_PHASE_STEP;
} octavo_msamp_kernels;

#endif
