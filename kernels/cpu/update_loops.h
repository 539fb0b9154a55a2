/* kernels/cpu/update_loops.h: the inner loops of optimizer steps and gradient sums that each level
 * has.
 */
#pragma once

#include <cstdint>

#include "kernels/format/adam.h"
#include "kernels/format/rounding.h"
#include "kernels/format/sum_order.h"

namespace octavo {

/* The tensors that an Adam step changes. */
enum AdamTensor { kWeight = 0, kExpAvg = 1, kExpAvgSq = 2, kAdamTensors = 3 };

/* What a step of one parameter does, apart from where its elements are. */
struct AdamPlan {
  AdamFactors factors;
  uint32_t gradient_dtype;
  float gradient_factor; /* its scale_inv; 1 where plain */
  float gradient_scale;  /* OCTAVO_HYPER_GRAD_SCALE */
  uint32_t dtypes[kAdamTensors];
  bool is_scaled[kAdamTensors]; /* one scale for the tensor; else plain, or in blocks */
  bool has_flat_moments;        /* both are in blocks of kAdamBlock */
  float old_scale_inv[kAdamTensors];
  float new_scale[kAdamTensors];
  bool stores_undecayed[kAdamTensors]; /* the moment is stored without the decay of L2 */
  bool keeps_positive;                 /* exp_avg_sq, see OCTAVO_ADAM_KEEP_POSITIVE */
  bool saturates;                      /* new values may be beyond the range of their codes */
  bool folds_scales;                   /* see can_fold_scales of adam_bound.h */
  uint32_t rounding[kAdamTensors];     /* OCTAVO_ROUND_... */
  RandomKey keys[kAdamTensors];        /* of stochastic roundings */
};

constexpr int64_t kAdamBlock = 256; /* elements of OCTAVO_FLAT_256 */

/* n consecutive elements of every tensor; with blocks, where one begins. */
struct AdamSpan {
  const void *gradient;
  void *tensors[kAdamTensors];
  float *block_scales[kAdamTensors]; /* of moments in blocks, from the span's first one on */
  int64_t n;
};

/* The bits of the largest new magnitudes; NaN counts as larger than infinity. */
struct AdamPeaks {
  int32_t bits[kAdamTensors];
};

/* Loops that go from codes to codes without a buffer of fp32 between. `supports` says whether they
 * know the plan's dtypes; the others must not be called where it does not. */
struct FusedAdamLoops {
  bool (*supports)(const AdamPlan &plan);
  /* Raises the peaks to those of the new values; *peaks must hold peaks of the same tensor or 0.
   * Only for plans and results that can_bound_change and are_bounded of adam_bound.h accept. */
  void (*measure)(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *peaks);
  /* Writes the new values with the new scales, and the scales of blocks; all values must be finite.
   */
  void (*write)(const AdamPlan &plan, const AdamSpan &span);
  /* The same for adam_one_pass, which measures nothing before it: where all tensors have a scale
   * and their new values are numbers. Raises *stored to the largest magnitude of the codes of
   * exp_avg, and of the others' new values times their new scales. */
  void (*pass)(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *stored);
};

/* Blocks of optimizer states, see kernels/format/block_state.h; values are finite or not. */
struct StateLoops {
  /* Largest and smallest magnitude that is finite and not 0. */
  BlockRange (*range)(const float *values, int64_t n);
  /* codes[i] = encode_flat(scale_inv, values[i]). */
  void (*encode_flat)(float scale_inv, const float *values, int64_t n, uint8_t *codes);
  /* codes[i] = encode_expanded(group, values[i]); the values are those that the group was made of.
   */
  void (*encode_expanded)(const ExpandedGroup &group, const float *values, int64_t n,
                          uint8_t *codes);
  /* values[i] = decode_expanded(group, codes[i]). */
  void (*decode_expanded)(const ExpandedGroup &group, const uint8_t *codes, int64_t n,
                          float *values);
};

/* Roundings besides the one to nearest even, see kernels/format/rounding.h. */
struct RoundingLoops {
  /* Stochastic: codes of fl32(values * scale), where the first one is element `first`. Saturates as
   * `cast` of level.h does where is_scaled or a code has 8 bits, else overflows as `store` does. */
  void (*cast)(uint32_t dtype, bool is_scaled, const float *values, int64_t n, float scale,
               RandomKey key, uint64_t first, void *codes);
  /* codes[i] = round_code of values[i], scale_inv[i] and element first + i * step, to E4M3FN or
   * E5M2. */
  void (*round_again)(uint32_t dtype, const float *values, const float *scale_inv, int64_t n,
                      RandomKey key, uint64_t first, uint64_t step, uint8_t *codes);
  /* codes[i] = encode_expanded_random(group, values[i]). */
  void (*encode_expanded)(const ExpandedGroup &group, const float *values, int64_t n, RandomKey key,
                          uint64_t first, uint8_t *codes);
  /* Codes of `bytes` bytes that stand for `stored`: one less where that undoes a decay. */
  void (*shrink)(int64_t bytes, const float *stored, const float *values, const float *old,
                 float limit, int64_t n, void *codes);
};

struct UpdateLoops {
  /* adam_element for n fp32 values in place; a moment that is stored undecayed is written so. */
  void (*step)(const AdamPlan &plan, const float *gradient, int64_t n, float *weight,
               float *exp_avg, float *exp_avg_sq);
  const FusedAdamLoops *fused; /* null: none on this level */
  StateLoops states;
  RoundingLoops rounding;
  /* The largest code of E4M3, without signs. */
  uint8_t (*highest_code)(const uint8_t *codes, int64_t n);
  /* out[i] = cast(sum over shards, in order, of the value of codes[shard * stride + i]) for E4M3FN
   * or E5M2; returns how many sums were beyond the largest finite code. */
  int64_t (*sum_codes)(uint32_t dtype, const uint8_t *codes, uint64_t shards, uint64_t stride,
                       int64_t n, uint8_t *out);
  /* sums[i] += values[i]. */
  void (*add_each)(const float *values, int64_t n, double *sums);
  /* sums[i % kSquareSums] += values[i]^2, i ascending. */
  void (*add_squares)(const float *values, int64_t n, double *sums);
  /* See sum_order.h. */
  double (*add_halves)(double *sums);
};

}  // namespace octavo
