/* octavo/draft.h: values and calls that one paper or one library alone needs.
 *
 * They are no part of the contract that ABI 1.0 freezes. Their numbers begin at 0x8000, so that
 * they never collide with those of the contract. A draft that changes gets a new number, and no
 * number is used again: kernels that do not know it return OCTAVO_UNSUPPORTED. Before a backend
 * relies on a call or a granularity of this header, it asks octavo_kernels.ability in
 * check_session. A draft that a second method needs becomes part of the contract, under a number
 * of its own. The folder octavo/draft has more of them.
 */
#ifndef OCTAVO_DRAFT_H
#define OCTAVO_DRAFT_H

#include "octavo/kernels.h"

/* A rule, as MS-AMP 0.4.0: OCTAVO_RULE_MSAMP, but an infinite amax gives 1 / old scale, and a
 * quotient that overflows gives an infinite scale. */
#define OCTAVO_RULE_MSAMP04 0x8000u

/* OCTAVO_HISTORY_DROP_NONFINITE, NAN_KEEPS and COUNT_FROM_ONE. MS-AMP 0.4.0 restarts its counter at
 * 0, so its history_flags are DROP_NONFINITE and NAN_KEEPS alone. */
#define OCTAVO_HISTORY_MSAMP04 14u

/* An octavo_adam_step.decay_mode, as MS-AMP 0.4.0: OCTAVO_DECAY_L2, but scaled moments are stored
 * without the decay. */
#define OCTAVO_DECAY_L2_MSAMP04 0x8000u

/* A granularity of optimizer states, grouped as with OCTAVO_FLAT_256: E4M3 codes with f32
 * [groups of 128, 3]: scale_inv, exponent k, center c.
 * value = sign(code) * pow(abs(code) * scale_inv, 1 / k) * c
 * (dynamic range expansion; COAT, arXiv 2410.19313, section 4) */
#define OCTAVO_EXPANDED_128 0x8000u

/* The `kind` of a call of octavo_kernels.draft. */
#define OCTAVO_KIND_PRESCALE_UPDATE 0x8000u

/* Arguments of the draft call prescale_update, the automatic scaling of a gradient reduction
 * (FP8-LM, arXiv 2310.18313, section 2.2). *prescale is halved if *saturated / *added > threshold
 * and multiplied by `growth` otherwise, then clamped to [low, high]. It is unchanged if *added is
 * 0. Both counts are reset to 0. */
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

#endif
