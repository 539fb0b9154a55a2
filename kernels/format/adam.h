/* kernels/format/adam.h: an Adam step in fp32: the update of one element, and the factors per
 * tensor.
 *
 * There are two ways to compute 1 - beta, and both are needed: torch.optim uses the decimal number
 * that the user wrote, MS-AMP's kernels use the fp32 number. For beta2 = 0.999, the results differ
 * by a relative 1.3e-5, which is visible in the second moment.
 */
#pragma once

#include "kernels/format/bits.h"
#include "octavo/draft/optimizer.h"

namespace octavo {

/* The number with at most six decimals that rounds to `value`, or `value` if there is none. For
 * 0 <= value < 1, where at most one such number exists. */
OCTAVO_HOST_DEVICE static inline double decimal_of(float value) {
  if (!(value >= 0.0f && value < 1.0f)) return static_cast<double>(value);
  const int32_t millionths = static_cast<int32_t>(static_cast<double>(value) * 1e6 + 0.5);
  const double decimal = static_cast<double>(millionths) / 1e6;
  return static_cast<float>(decimal) == value ? decimal : static_cast<double>(value);
}

/* base^exponent for exponent >= 0 by squaring, so that every device rounds in the same way. */
OCTAVO_HOST_DEVICE static inline double integer_power(double base, int32_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

OCTAVO_HOST_DEVICE static inline float square_root(float value) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(value);
#else
  return __builtin_sqrtf(value);
#endif
}

/* The number from which 1 - beta and beta^t are computed. */
enum class AdamBetas {
  kDecimal, /* decimal_of the fp32 hyperparameter: for plain states, as torch.optim, and for states
               with one scale per block, as torchao */
  kSingle   /* the fp32 hyperparameter: for states with one scale per tensor, as MS-AMP */
};

/* The factors of a step that all elements of a tensor share. */
struct AdamFactors {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float step_size;        /* lr / (1 - beta1^t) */
  float root_correction2; /* sqrt(1 - beta2^t) */
  float eps;
  float keep;        /* 1 - lr * weight_decay; 1 with L2 */
  float l2;          /* weight_decay with L2; else 0 */
  float ratio_limit; /* see one_pass.h; infinity: none */
};

OCTAVO_HOST_DEVICE static inline int32_t next_step(int32_t step) {
  return step == INT32_MAX ? step : step + 1;
}

/* `step` starts at 1. */
OCTAVO_HOST_DEVICE static inline AdamFactors adam_factors(const float *hyper, int32_t step,
                                                          bool decay_is_l2, AdamBetas betas) {
  const bool is_decimal = betas == AdamBetas::kDecimal;
  const float single1 = hyper[OCTAVO_HYPER_BETA1];
  const float single2 = hyper[OCTAVO_HYPER_BETA2];
  const double beta1 = is_decimal ? decimal_of(single1) : static_cast<double>(single1);
  const double beta2 = is_decimal ? decimal_of(single2) : static_cast<double>(single2);
  const double lr = static_cast<double>(hyper[OCTAVO_HYPER_LR]);
  const float decay = hyper[OCTAVO_HYPER_WEIGHT_DECAY];
  AdamFactors f;
  f.beta1 = single1;
  f.beta2 = single2;
  f.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  f.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  f.step_size = static_cast<float>(lr / (1.0 - integer_power(beta1, step)));
  f.root_correction2 = square_root(static_cast<float>(1.0 - integer_power(beta2, step)));
  f.eps = hyper[OCTAVO_HYPER_EPS];
  f.keep = decay_is_l2 ? 1.0f : static_cast<float>(1.0 - lr * static_cast<double>(decay));
  f.l2 = decay_is_l2 ? decay : 0.0f;
  f.ratio_limit = bits_float(kInfinityBits);
  return f;
}

struct AdamElement {
  float weight;
  float exp_avg;
  float exp_avg_sq;
};

struct AdamMoments {
  float exp_avg;
  float exp_avg_sq;
};

OCTAVO_HOST_DEVICE static inline AdamMoments adam_moments(const AdamFactors &f,
                                                          const AdamElement &old, float gradient) {
  return {f.beta1 * old.exp_avg + f.one_minus_beta1 * gradient,
          f.beta2 * old.exp_avg_sq + f.one_minus_beta2 * (gradient * gradient)};
}

/* The value with a magnitude of at most `limit`; NaN stays, and a limit that is NaN limits nothing.
 */
OCTAVO_HOST_DEVICE static inline float limited(float value, float limit) {
  const float below = value > limit ? limit : value;
  return below < -limit ? -limit : below;
}

/* What the step size multiplies. */
OCTAVO_HOST_DEVICE static inline float adam_ratio(const AdamFactors &f, const AdamMoments &m) {
  return m.exp_avg / (square_root(m.exp_avg_sq) / f.root_correction2 + f.eps);
}

/* The weight and the gradient with the decay in them; `gradient` is already multiplied by its
 * scale_inv and by OCTAVO_HYPER_GRAD_SCALE. */
struct AdamDecayed {
  float weight;
  float gradient;
};

OCTAVO_HOST_DEVICE static inline AdamDecayed adam_decayed(const AdamFactors &f, float weight,
                                                          float gradient) {
  const float kept = weight * f.keep;
  return {kept, f.l2 == 0.0f ? gradient : gradient + f.l2 * kept};
}

/* kLimits: the factors may have a ratio_limit. */
template <bool kLimits = true>
OCTAVO_HOST_DEVICE static inline float adam_weight(const AdamFactors &f, float decayed,
                                                   float ratio) {
  return decayed - f.step_size * (kLimits ? limited(ratio, f.ratio_limit) : ratio);
}

template <bool kLimits = true>
OCTAVO_HOST_DEVICE static inline AdamElement adam_element(const AdamFactors &f, AdamElement old,
                                                          float gradient) {
  const AdamDecayed decayed = adam_decayed(f, old.weight, gradient);
  const AdamMoments moments = adam_moments(f, old, decayed.gradient);
  return {adam_weight<kLimits>(f, decayed.weight, adam_ratio(f, moments)), moments.exp_avg,
          moments.exp_avg_sq};
}

}  // namespace octavo
