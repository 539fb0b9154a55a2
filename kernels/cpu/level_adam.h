/* kernels/cpu/level_adam.h: an Adam step in vectors; included by level.cpp only. */
#pragma once

#include "kernels/cpu/adam_bound.h"
#include "kernels/cpu/level_tile.h"
#include "kernels/cpu/level_update_values.h"
#include "kernels/cpu/update_loops.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

/* adam_element of kernels/format for vectors, and over rows of fp32.
 *
 * The operations and their order are those of adam_element. Addition, multiplication, division
 * and square root round correctly in vectors as they do in scalars, so the bits are equal. */

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

/* An Adam step from codes to codes in registers.
 *
 * A pass loads kGroup elements of every tensor, steps them and either folds them into the peaks
 * or writes them. The remainder of a span goes through a group on the stack that zeros fill up.
 * adam_bound.h says why the first pass needs few roots and divisions. */

#ifdef OCTAVO_CAST_VECTORS

/* The dtypes of one layout: gradient, weight and the two moments. kHasBlocks: the moments are in
 * blocks of 256. */
template <typename Gradient, typename Weight, typename ExpAvg, typename ExpAvgSq,
          bool kHasBlocks = false>
struct AdamLayout {
  static constexpr bool kIsInBlocks = kHasBlocks;
  const Gradient gradient = {};
  const Weight weight = {};
  const ExpAvg exp_avg = {};
  const ExpAvgSq exp_avg_sq = {};

  static constexpr int kBytes[kAdamTensors] = {Weight::kBytes, ExpAvg::kBytes, ExpAvgSq::kBytes};
  static constexpr int kGradientBytes = Gradient::kBytes;
};

/* What multiplies codes. kFolds: the old scales are in the factors. */
template <bool kFolds>
struct AdamScales {
  Vector gradient_factor;
  Vector gradient_scale;
  Vector old[kAdamTensors];
  Vector now[kAdamTensors];

  explicit AdamScales(const AdamPlan &plan)
      : gradient_factor(all_lanes(plan.gradient_factor)),
        gradient_scale(all_lanes(plan.gradient_scale)),
        old{},
        now{} {
    for (int i = 0; i < kAdamTensors; ++i) {
      old[i] = all_lanes(plan.old_scale_inv[i]);
      now[i] = all_lanes(plan.new_scale[i]);
    }
  }
  Vector gradient_of(Vector codes) const {
    return kFolds ? codes * gradient_scale : codes * gradient_factor * gradient_scale;
  }
};

/* The old values of a group, as the step takes them. */
template <typename Layout>
struct AdamReader {
  decltype(Layout::gradient.read(nullptr)) gradients;
  decltype(Layout::weight.read(nullptr)) weights;
  decltype(Layout::exp_avg.read(nullptr)) exp_avgs;
  decltype(Layout::exp_avg_sq.read(nullptr)) exp_avg_sqs;

  AdamReader(const Layout &layout, const char *gradient, char *const *tensors)
      : gradients(layout.gradient.read(gradient)),
        weights(layout.weight.read(tensors[kWeight])),
        exp_avgs(layout.exp_avg.read(tensors[kExpAvg])),
        exp_avg_sqs(layout.exp_avg_sq.read(tensors[kExpAvgSq])) {}

  template <bool kFolds>
  Vector gradient(const AdamScales<kFolds> &scales, int i) const {
    return scales.gradient_of(gradients(i));
  }
  template <bool kFolds>
  AdamLanes lanes(const AdamScales<kFolds> &scales, int i) const {
    AdamLanes lanes = {weights(i), exp_avgs(i), exp_avg_sqs(i)};
    if (kFolds) return lanes;
    if (Layout::kBytes[kWeight] < 4) lanes.weight *= scales.old[kWeight];
    if (Layout::kBytes[kExpAvg] < 4) lanes.exp_avg *= scales.old[kExpAvg];
    if (Layout::kBytes[kExpAvgSq] < 4) lanes.exp_avg_sq *= scales.old[kExpAvgSq];
    return lanes;
  }
};

/* Calls body(gradient, tensors, is_rest) for every group of a span; the rest is in copies that
 * after(tensors, count) may read. */
template <typename Layout, typename Body>
inline void for_groups(const AdamSpan &span, bool writes, Body &&body) {
  const auto *gradient = static_cast<const char *>(span.gradient);
  char *tensors[kAdamTensors];
  for (int i = 0; i < kAdamTensors; ++i) tensors[i] = static_cast<char *>(span.tensors[i]);
  int64_t left = span.n;
  for (; left >= kGroup; left -= kGroup) {
    body(gradient, tensors);
    gradient += kGroup * Layout::kGradientBytes;
    for (int i = 0; i < kAdamTensors; ++i) tensors[i] += kGroup * Layout::kBytes[i];
  }
  if (left == 0) return;
  alignas(64) char rest_gradient[kGroup * sizeof(float)] = {};
  alignas(64) char rest[kAdamTensors][kGroup * sizeof(float)] = {};
  char *copies[kAdamTensors];
  __builtin_memcpy(rest_gradient, gradient, static_cast<size_t>(left * Layout::kGradientBytes));
  for (int i = 0; i < kAdamTensors; ++i) {
    copies[i] = rest[i];
    __builtin_memcpy(rest[i], tensors[i], static_cast<size_t>(left * Layout::kBytes[i]));
  }
  body(rest_gradient, copies);
  if (!writes) return;
  for (int i = 0; i < kAdamTensors; ++i) {
    __builtin_memcpy(tensors[i], rest[i], static_cast<size_t>(left * Layout::kBytes[i]));
  }
}

/* The old scales of moments in blocks, for the group that begins at an element of a span. */
struct MomentScales {
  Vector exp_avg = {};
  Vector exp_avg_sq = {};

  MomentScales() = default;
  MomentScales(const AdamSpan &span, int64_t first)
      : exp_avg(all_lanes(span.block_scales[kExpAvg][first / kAdamBlock])),
        exp_avg_sq(all_lanes(span.block_scales[kExpAvgSq][first / kAdamBlock])) {
    static_assert(kAdamBlock % kGroup == 0);
  }
  AdamLanes times(const AdamLanes &lanes) const {
    return {lanes.weight, lanes.exp_avg * exp_avg, lanes.exp_avg_sq * exp_avg_sq};
  }
};

/* kIsPlain: no L2, scales that fold, and no new value beyond the range of its codes. */
template <typename Layout, bool kIsPlain>
void measure_span(const AdamPlan &all, const AdamSpan &span, AdamPeaks *peaks) {
  const AdamPlan plan = kIsPlain ? with_folded_scales(all) : all;
  const AdamVectors f(plan.factors);
  const AdamExtras extras(plan);
  const AdamScales<kIsPlain> scales(plan);
  const Layout layout;
  const float root = plan.factors.root_correction2;
  const Vector root_factor = all_lanes(1.0f / (root * root));
  const Vector eps_squared = all_lanes(plan.factors.eps * plan.factors.eps);
  const Vector slack = all_lanes(kChangeSlack);
  const Vector floor = all_lanes(kChangeFloor);
  UpdateBits highest_exp_avg = {};
  UpdateBits highest_exp_avg_sq = {};
  int32_t highest_weight = peaks->bits[kWeight];
  Vector largest_weight = all_lanes(bits_float(highest_weight));
  int64_t at = 0;
  MomentScales blocks = {};
  const auto old_lanes = [&](const AdamReader<Layout> &reader, int i) {
    const AdamLanes lanes = reader.lanes(scales, i);
    return Layout::kIsInBlocks ? blocks.times(lanes) : lanes;
  };
  for_groups<Layout>(span, false, [&](const char *gradient, char *const *tensors) {
    const AdamReader<Layout> reader(layout, gradient, tensors);
    LaneSet matters = {};
    if constexpr (Layout::kIsInBlocks) blocks = {span, at};
    at += kGroup;
#pragma GCC unroll 4
    for (int i = 0; i < kGroupVectors; ++i) {
      const AdamLanes old = old_lanes(reader, i);
      const Vector kept = old.weight * f.keep;
      Vector g = reader.gradient(scales, i);
      if (!kIsPlain && extras.has_l2) g += f.l2 * kept;
      const Vector exp_avg = f.new_exp_avg(old.exp_avg, g);
      const Vector exp_avg_sq = f.new_exp_avg_sq(old.exp_avg_sq, g);
      highest_exp_avg = higher(highest_exp_avg, as_bits(exp_avg) & kMagnitudeMask);
      highest_exp_avg_sq = higher(highest_exp_avg_sq, as_bits(exp_avg_sq));
      const Vector reach = f.step_size * exp_avg;
      const Vector distance =
          above_zero(largest_weight - as_values(as_bits(kept) & kMagnitudeMask));
      const Vector needed = distance * (distance * fused_sum(exp_avg_sq, root_factor, eps_squared));
      matters |= lanes_not_below(fused_sum(reach * slack, reach, floor), needed);
    }
    if (__builtin_expect(is_empty(matters), 1)) return;
    AdamExtras decayed = extras;
    decayed.undecayed_exp_avg = decayed.undecayed_exp_avg_sq = false;
    UpdateBits highest = {};
    for (int i = 0; i < kGroupVectors; ++i) {
      const AdamLanes lanes =
          adam_lanes<kIsPlain>(f, decayed, old_lanes(reader, i), reader.gradient(scales, i));
      highest = higher(highest, as_bits(lanes.weight) & kMagnitudeMask);
    }
    const int32_t found = highest_lane(highest);
    if (found <= highest_weight) return;
    highest_weight = found;
    largest_weight = all_lanes(bits_float(found));
  });
  peaks->bits[kWeight] = highest_weight;
  /* A second moment below 0 counts as NaN: the test fails for it. */
  const uint32_t exp_avg_sq = static_cast<uint32_t>(highest_lane(highest_exp_avg_sq));
  const int32_t limited = exp_avg_sq > static_cast<uint32_t>(kMagnitudeMask)
                              ? kQuietNanBits
                              : static_cast<int32_t>(exp_avg_sq);
  const int32_t exp_avg = highest_lane(highest_exp_avg);
  if (exp_avg > peaks->bits[kExpAvg]) peaks->bits[kExpAvg] = exp_avg;
  if (limited > peaks->bits[kExpAvgSq]) peaks->bits[kExpAvgSq] = limited;
}

/* The largest of what a span stored, lane by lane, as FusedAdamLoops.pass has it. */
struct StoredPeaks {
  UpdateBits of[kAdamTensors] = {};

  void raise(const AdamLanes &scaled, UpdateBits exp_avg_code) {
    of[kWeight] = higher(of[kWeight], as_bits(scaled.weight) & kMagnitudeMask);
    of[kExpAvg] = higher(of[kExpAvg], exp_avg_code);
    of[kExpAvgSq] = higher(of[kExpAvgSq], as_bits(scaled.exp_avg_sq)); /* not below 0 */
  }
  void add_to(AdamPeaks *peaks) const {
    for (int i = 0; i < kAdamTensors; ++i) {
      const int32_t highest = highest_lane(of[i]);
      if (highest > peaks->bits[i]) peaks->bits[i] = highest;
    }
  }
};

/* Scaled values without a sign. Where a scale made 0 of a value above 0, the smallest number: its
 * code is 0, too, but it counts as above 0. */
inline Vector above_zero_as(Vector scaled, Vector values) {
  return as_values(higher(as_bits(scaled), (as_bits(values) > 0) & 1));
}

/* kShrinks: exp_avg, whose codes have 8 bits, is rounded by OCTAVO_ROUND_SHRINKING. kIsOnePass: for
 * adam_one_pass, which saturates where it was given wrong peaks. */
template <typename Layout, bool kIsPlain, bool kShrinks, bool kIsOnePass = false>
void write_span(const AdamPlan &all, const AdamSpan &span, AdamPeaks *peaks = nullptr) {
  constexpr bool kSaturates = !kIsPlain || kIsOnePass;
  const AdamPlan plan = kIsPlain ? with_folded_scales(all) : all;
  const AdamVectors f(plan.factors);
  const AdamExtras extras(plan);
  const AdamScales<kIsPlain> scales(plan);
  const LaneMask raised = plan.keeps_positive ? kAllLanes : LaneMask{};
  const Vector new_scale_inv = all_lanes(1.0f / plan.new_scale[kExpAvg]);
  const Vector limit = all_lanes(decay_limit(all.factors.beta1));
  const Layout layout;
  StoredPeaks stored;
  for_groups<Layout>(span, true, [&](const char *gradient, char *const *tensors) {
    const AdamReader<Layout> reader(layout, gradient, tensors);
    auto weights = layout.weight.write(tensors[kWeight]);
    auto exp_avgs = layout.exp_avg.write(tensors[kExpAvg]);
    auto exp_avg_sqs = layout.exp_avg_sq.write(tensors[kExpAvgSq]);
#pragma GCC unroll 4
    for (int i = 0; i < kGroupVectors; ++i) {
      const AdamLanes old = reader.lanes(scales, i);
      AdamLanes lanes =
          adam_lanes<kIsPlain, kSaturates>(f, extras, old, reader.gradient(scales, i));
      const Vector value = lanes.exp_avg;
      if (Layout::kBytes[kExpAvg] < 4) lanes.exp_avg *= scales.now[kExpAvg];
      if (Layout::kBytes[kExpAvgSq] < 4) {
        const Vector scaled = lanes.exp_avg_sq * scales.now[kExpAvgSq];
        lanes.exp_avg_sq = raised != 0 ? above_zero_as(scaled, lanes.exp_avg_sq) : scaled;
      }
      if (Layout::kBytes[kWeight] < 4) lanes.weight *= scales.now[kWeight];
      weights.template set<kSaturates>(i, lanes.weight, 0);
      exp_avgs.template set<kSaturates>(i, lanes.exp_avg, 0);
      if constexpr (kShrinks) {
        const Vector old_value = kIsPlain ? old.exp_avg * scales.old[kExpAvg] : old.exp_avg;
        exp_avgs.shrink(i, value, old_value, limit, new_scale_inv);
      }
      exp_avg_sqs.template set<kSaturates>(i, lanes.exp_avg_sq, raised);
      if constexpr (kIsOnePass) stored.raise(lanes, exp_avgs.magnitude(i));
    }
    weights.finish();
    exp_avgs.finish();
    exp_avg_sqs.finish();
  });
  if constexpr (kIsOnePass) stored.add_to(peaks);
}

#endif

}  // namespace
}  // namespace octavo
