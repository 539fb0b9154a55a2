/* kernels/cpu/level_adam.h: adam_element of kernels/format for vectors, and over rows of fp32;
 * included by level.cpp only.
 *
 * The operations and their order are those of adam_element. Addition, multiplication, division and
 * square root round correctly in vectors as they do in scalars, so the bits are equal.
 */
#pragma once

#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/update_loops.h"

#ifdef OCTAVO_NEON
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

inline Vector roots_of(Vector values) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(values);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(values);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(values);
#elif defined(OCTAVO_NEON)
  return vsqrtq_f32(values);
#else
  for (int i = 0; i < kLanes; ++i) values[i] = square_root(values[i]);
  return values;
#endif
}

/* The old values of kLanes elements, or the new ones. */
struct AdamLanes {
  Vector weight;
  Vector exp_avg;
  Vector exp_avg_sq;
};

inline Vector all_lanes(float value) {
  return Vector{} + value;
}

/* limited of kernels/format: where an operand is NaN, the instructions return the second one. */
inline Vector limited_lanes(Vector values, Vector limit) {
#if defined(__AVX512F__)
  return _mm512_max_ps(-limit, _mm512_min_ps(limit, values));
#elif defined(__AVX2__)
  return _mm256_max_ps(-limit, _mm256_min_ps(limit, values));
#elif defined(__SSE2__)
  return _mm_max_ps(-limit, _mm_min_ps(limit, values));
#else
  const Vector below = values > limit ? limit : values;
  return below < -limit ? -limit : below;
#endif
}

/* AdamFactors in every lane. */
struct AdamVectors {
  Vector beta1;
  Vector beta2;
  Vector one_minus_beta1;
  Vector one_minus_beta2;
  Vector step_size;
  Vector root_correction2;
  Vector eps;
  Vector keep;
  Vector l2;
  Vector ratio_limit;

  explicit AdamVectors(const AdamFactors &f)
      : beta1(all_lanes(f.beta1)),
        beta2(all_lanes(f.beta2)),
        one_minus_beta1(all_lanes(f.one_minus_beta1)),
        one_minus_beta2(all_lanes(f.one_minus_beta2)),
        step_size(all_lanes(f.step_size)),
        root_correction2(all_lanes(f.root_correction2)),
        eps(all_lanes(f.eps)),
        keep(all_lanes(f.keep)),
        l2(all_lanes(f.l2)),
        ratio_limit(all_lanes(f.ratio_limit)) {}

  Vector new_exp_avg(Vector old, Vector gradient) const {
    return beta1 * old + one_minus_beta1 * gradient;
  }
  Vector new_exp_avg_sq(Vector old, Vector gradient) const {
    return beta2 * old + one_minus_beta2 * (gradient * gradient);
  }
  template <bool kLimits>
  Vector change(Vector exp_avg, Vector exp_avg_sq) const {
    const Vector denominator = roots_of(exp_avg_sq) / root_correction2 + eps;
    const Vector ratio = exp_avg / denominator;
    return step_size * (kLimits ? limited_lanes(ratio, ratio_limit) : ratio);
  }
};

/* What a step adds to the plain one; known when the loop is compiled, so that the plain loop
 * has no branch. An L2 of 0 adds nothing, not even the NaN of 0 * infinity. */
struct AdamExtras {
  bool has_l2;
  bool undecayed_exp_avg;
  bool undecayed_exp_avg_sq;

  explicit AdamExtras(const AdamPlan &plan)
      : has_l2(plan.factors.l2 != 0.0f),
        undecayed_exp_avg(has_l2 && plan.stores_undecayed[kExpAvg]),
        undecayed_exp_avg_sq(has_l2 && plan.stores_undecayed[kExpAvgSq]) {}
};

/* What is stored: with the decay of L2 a moment may be stored without it. kIsPlain: without extras.
 * kLimits: the factors may have a ratio_limit. */
template <bool kIsPlain, bool kLimits = !kIsPlain>
inline AdamLanes adam_lanes(const AdamVectors &f, const AdamExtras &extras, const AdamLanes &old,
                            Vector gradient) {
  const Vector kept = old.weight * f.keep;
  const Vector decayed = !kIsPlain && extras.has_l2 ? gradient + f.l2 * kept : gradient;
  AdamLanes lanes;
  lanes.exp_avg = f.new_exp_avg(old.exp_avg, decayed);
  lanes.exp_avg_sq = f.new_exp_avg_sq(old.exp_avg_sq, decayed);
  lanes.weight = kept - f.change<kLimits>(lanes.exp_avg, lanes.exp_avg_sq);
  if (!kIsPlain && extras.undecayed_exp_avg) lanes.exp_avg = f.new_exp_avg(old.exp_avg, gradient);
  if (!kIsPlain && extras.undecayed_exp_avg_sq) {
    lanes.exp_avg_sq = f.new_exp_avg_sq(old.exp_avg_sq, gradient);
  }
  return lanes;
}

/* By value: the alignment of VectorInMemory is lost by clang where a function returns a reference.
 */
inline Vector load_values(const float *at) {
  return *reinterpret_cast<const VectorInMemory *>(at);
}
inline void store_values(float *at, Vector values) {
  *reinterpret_cast<VectorInMemory *>(at) = values;
}

template <bool kIsPlain>
void step_values(const AdamPlan &plan, const float *gradient, int64_t n, float *weight,
                 float *exp_avg, float *exp_avg_sq) {
  const AdamVectors factors(plan.factors);
  const AdamExtras extras(plan);
  const Vector gradient_scale = all_lanes(plan.gradient_scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector g = load_values(gradient + i) * gradient_scale;
    const AdamLanes old = {load_values(weight + i), load_values(exp_avg + i),
                           load_values(exp_avg_sq + i)};
    const AdamLanes lanes = adam_lanes<kIsPlain>(factors, extras, old, g);
    store_values(weight + i, lanes.weight);
    store_values(exp_avg + i, lanes.exp_avg);
    store_values(exp_avg_sq + i, lanes.exp_avg_sq);
  }
  if (i == n) return;
  AdamLanes rest = {};
  Vector g = {};
  for (int64_t k = 0; i + k < n; ++k) {
    g[k] = gradient[i + k];
    rest.weight[k] = weight[i + k];
    rest.exp_avg[k] = exp_avg[i + k];
    rest.exp_avg_sq[k] = exp_avg_sq[i + k];
  }
  const AdamLanes lanes = adam_lanes<kIsPlain>(factors, extras, rest, g * gradient_scale);
  for (int64_t k = 0; i + k < n; ++k) {
    weight[i + k] = lanes.weight[k];
    exp_avg[i + k] = lanes.exp_avg[k];
    exp_avg_sq[i + k] = lanes.exp_avg_sq[k];
  }
}

void step_rows(const AdamPlan &plan, const float *gradient, int64_t n, float *weight,
               float *exp_avg, float *exp_avg_sq) {
  if (plan.factors.l2 == 0.0f && plan.factors.ratio_limit == bits_float(kInfinityBits)) {
    step_values<true>(plan, gradient, n, weight, exp_avg, exp_avg_sq);
  } else {
    step_values<false>(plan, gradient, n, weight, exp_avg, exp_avg_sq);
  }
}

}  // namespace
}  // namespace octavo
