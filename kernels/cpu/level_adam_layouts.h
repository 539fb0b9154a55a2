/* kernels/cpu/level_adam_layouts.h: Adam steps from codes to codes: blocks, and the layouts that
 * are compiled; included by level.cpp only. */
#pragma once

#include "kernels/cpu/level_adam.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

/* The second pass of an Adam step whose moments are in blocks of 256, each with the scale of
 * its new values.
 *
 * The new moments of a block stay in fp32 on the stack until its largest ones are known. The
 * weight is written at once. */

#ifdef OCTAVO_CAST_VECTORS

/* A moment of a block in fp32; what is beyond the block's end is 0. */
struct BlockMoment {
  alignas(64) float values[kAdamBlock];
  UpdateBits highest = {};

  void set(int64_t at, Vector value) {
    store_values(values + at, value);
    highest = higher(highest, as_bits(value) & kMagnitudeMask);
  }
};

/* The codes of the first n values with a new scale; old: where the moment shrinks, what it was. */
inline void write_moment(const BlockMoment &moment, const float *old, Vector limit, bool is_raised,
                         int64_t n, char *codes, float *scale_inv) {
  *scale_inv = flat_scale_inv({bits_float(highest_lane(moment.highest)), 0.0f});
  const Vector scale = all_lanes(*scale_inv);
  const E4m3Values format;
  for (int64_t first = 0; first < n; first += kGroup) {
    char rest[kGroup];
    const bool is_whole = n - first >= kGroup;
    auto to = format.write(is_whole ? codes + first : rest);
#pragma GCC unroll 4
    for (int i = 0; i < kGroupVectors; ++i) {
      const int64_t at = first + i * kLanes;
      const Vector value = load_values(moment.values + at);
      to.template set<true>(i, value / scale, 0);
      if (old != nullptr) to.shrink(i, value, load_values(old + at), limit, scale);
      if (is_raised) to.raise(i, value);
    }
    to.finish();
    if (!is_whole) __builtin_memcpy(codes + first, rest, static_cast<size_t>(n - first));
  }
}

template <typename Layout>
AdamSpan part_of(const AdamSpan &span, int64_t first) {
  const int64_t left = span.n - first;
  AdamSpan part = {static_cast<const char *>(span.gradient) + first * Layout::kGradientBytes,
                   {},
                   {},
                   left < kAdamBlock ? left : kAdamBlock};
  for (int i = 0; i < kAdamTensors; ++i) {
    part.tensors[i] = static_cast<char *>(span.tensors[i]) + first * Layout::kBytes[i];
    if (i != kWeight) part.block_scales[i] = span.block_scales[i] + first / kAdamBlock;
  }
  return part;
}

/* kIsPlain: as of write_span. */
template <typename Layout, bool kIsPlain>
void write_blocks(const AdamPlan &all, const AdamSpan &span) {
  const AdamPlan plan = kIsPlain ? with_folded_scales(all) : all;
  const AdamVectors f(plan.factors);
  const AdamExtras extras(plan);
  const AdamScales<kIsPlain> scales(plan);
  const Vector limit = all_lanes(decay_limit(all.factors.beta1));
  const bool shrinks = plan.rounding[kExpAvg] != OCTAVO_ROUND_NEAREST_EVEN;
  const Layout layout;
  for (int64_t first = 0; first < span.n; first += kAdamBlock) {
    const AdamSpan block = part_of<Layout>(span, first);
    const MomentScales old_scales(block, 0);
    BlockMoment exp_avg, exp_avg_sq;
    alignas(64) float old_exp_avg[kAdamBlock];
    int64_t at = 0;
    for_groups<Layout>(block, true, [&](const char *gradient, char *const *tensors) {
      const AdamReader<Layout> reader(layout, gradient, tensors);
      auto weights = layout.weight.write(tensors[kWeight]);
#pragma GCC unroll 4
      for (int i = 0; i < kGroupVectors; ++i, at += kLanes) {
        const AdamLanes old = old_scales.times(reader.lanes(scales, i));
        const AdamLanes lanes = adam_lanes<kIsPlain>(f, extras, old, reader.gradient(scales, i));
        exp_avg.set(at, lanes.exp_avg);
        exp_avg_sq.set(at, lanes.exp_avg_sq);
        store_values(old_exp_avg + at, old.exp_avg);
        weights.template set<!kIsPlain>(i, lanes.weight * scales.now[kWeight], 0);
      }
      weights.finish();
    });
    write_moment(exp_avg, shrinks ? old_exp_avg : nullptr, limit, false, block.n,
                 static_cast<char *>(block.tensors[kExpAvg]), block.block_scales[kExpAvg]);
    write_moment(exp_avg_sq, nullptr, limit, plan.keeps_positive, block.n,
                 static_cast<char *>(block.tensors[kExpAvgSq]), block.block_scales[kExpAvgSq]);
  }
}

#endif

/* The layouts that level_adam.h is compiled for.
 *
 * A plan that none of them fits is stepped over segments of fp32, with the same bits. */

#ifdef OCTAVO_CAST_VECTORS

/* The layouts of MS-AMP: f16 weights with a scale, gradients in E4M3 or fp32, moments in E4M3 and
 * f16 with a scale each or in fp32. */
using CodesFromCodes = AdamLayout<E4m3Values, F16Values, E4m3Values, F16Values>;
using CodesFromF32 = AdamLayout<F32Values, F16Values, E4m3Values, F16Values>;
using PlainFromCodes = AdamLayout<E4m3Values, F16Values, F32Values, F32Values>;
using PlainFromF32 = AdamLayout<F32Values, F16Values, F32Values, F32Values>;
/* E4M3 moments in blocks. */
using BlocksFromCodes = AdamLayout<E4m3Values, F16Values, E4m3Values, E4m3Values, true>;
using BlocksFromF32 = AdamLayout<F32Values, F16Values, E4m3Values, E4m3Values, true>;
/* And everything in fp32, which has no scale to measure for. */
using AllF32 = AdamLayout<F32Values, F32Values, F32Values, F32Values>;

inline bool has_code_moments(const AdamPlan &plan) {
  return plan.is_scaled[kExpAvg] && plan.dtypes[kExpAvg] == OCTAVO_E4M3FN &&
         plan.is_scaled[kExpAvgSq] && plan.dtypes[kExpAvgSq] == OCTAVO_F16;
}

inline bool has_plain_moments(const AdamPlan &plan) {
  return !plan.is_scaled[kExpAvg] && plan.dtypes[kExpAvg] == OCTAVO_F32 &&
         !plan.is_scaled[kExpAvgSq] && plan.dtypes[kExpAvgSq] == OCTAVO_F32;
}

inline bool is_all_f32(const AdamPlan &plan) {
  return !plan.is_scaled[kWeight] && plan.dtypes[kWeight] == OCTAVO_F32 &&
         plan.gradient_dtype == OCTAVO_F32 && has_plain_moments(plan);
}

inline bool has_known_weight(const AdamPlan &plan) {
  return plan.is_scaled[kWeight] && plan.dtypes[kWeight] == OCTAVO_F16 &&
         (plan.gradient_dtype == OCTAVO_E4M3FN || plan.gradient_dtype == OCTAVO_F32);
}

inline bool has_block_moments(const AdamPlan &plan) {
  return plan.has_flat_moments && plan.dtypes[kExpAvg] == OCTAVO_E4M3FN &&
         plan.dtypes[kExpAvgSq] == OCTAVO_E4M3FN;
}

bool supports_plan(const AdamPlan &plan) {
  return is_all_f32(plan) ||
         (has_known_weight(plan) &&
          (has_code_moments(plan) || has_plain_moments(plan) || has_block_moments(plan)));
}

inline bool is_plain(const AdamPlan &plan) {
  return plan.folds_scales && plan.factors.l2 == 0.0f;
}

template <typename Layout>
void measure_layout(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *peaks) {
  if (is_plain(plan)) {
    measure_span<Layout, true>(plan, span, peaks);
  } else {
    measure_span<Layout, false>(plan, span, peaks);
  }
}

template <typename Layout, bool kShrinks = false>
void write_layout(const AdamPlan &plan, const AdamSpan &span) {
  if (is_plain(plan) && !plan.saturates) {
    write_span<Layout, true, kShrinks>(plan, span);
  } else {
    write_span<Layout, false, kShrinks>(plan, span);
  }
}

template <typename Layout>
void write_codes(const AdamPlan &plan, const AdamSpan &span) {
  plan.rounding[kExpAvg] == OCTAVO_ROUND_NEAREST_EVEN ? write_layout<Layout>(plan, span)
                                                      : write_layout<Layout, true>(plan, span);
}

void measure_plan(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *peaks) {
  const bool from_codes = plan.gradient_dtype == OCTAVO_E4M3FN;
  if (plan.has_flat_moments) {
    from_codes ? measure_layout<BlocksFromCodes>(plan, span, peaks)
               : measure_layout<BlocksFromF32>(plan, span, peaks);
  } else if (has_code_moments(plan)) {
    from_codes ? measure_layout<CodesFromCodes>(plan, span, peaks)
               : measure_layout<CodesFromF32>(plan, span, peaks);
  } else {
    from_codes ? measure_layout<PlainFromCodes>(plan, span, peaks)
               : measure_layout<PlainFromF32>(plan, span, peaks);
  }
}

template <typename Layout>
void write_block_layout(const AdamPlan &plan, const AdamSpan &span) {
  is_plain(plan) && !plan.saturates ? write_blocks<Layout, true>(plan, span)
                                    : write_blocks<Layout, false>(plan, span);
}

void write_plan(const AdamPlan &plan, const AdamSpan &span) {
  if (is_all_f32(plan)) return write_layout<AllF32>(plan, span);
  const bool from_codes = plan.gradient_dtype == OCTAVO_E4M3FN;
  if (plan.has_flat_moments) {
    from_codes ? write_block_layout<BlocksFromCodes>(plan, span)
               : write_block_layout<BlocksFromF32>(plan, span);
  } else if (has_code_moments(plan)) {
    from_codes ? write_codes<CodesFromCodes>(plan, span) : write_codes<CodesFromF32>(plan, span);
  } else {
    from_codes ? write_layout<PlainFromCodes>(plan, span) : write_layout<PlainFromF32>(plan, span);
  }
}

template <typename Layout, bool kShrinks>
void pass_layout(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *stored) {
  if (is_plain(plan)) {
    write_span<Layout, true, kShrinks, true>(plan, span, stored);
  } else {
    write_span<Layout, false, kShrinks, true>(plan, span, stored);
  }
}

template <typename Layout>
void pass_codes(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *stored) {
  plan.rounding[kExpAvg] == OCTAVO_ROUND_NEAREST_EVEN
      ? pass_layout<Layout, false>(plan, span, stored)
      : pass_layout<Layout, true>(plan, span, stored);
}

void pass_plan(const AdamPlan &plan, const AdamSpan &span, AdamPeaks *stored) {
  plan.gradient_dtype == OCTAVO_E4M3FN ? pass_codes<CodesFromCodes>(plan, span, stored)
                                       : pass_codes<CodesFromF32>(plan, span, stored);
}

constexpr FusedAdamLoops kFusedAdamLoops = {&supports_plan, &measure_plan, &write_plan, &pass_plan};
constexpr const FusedAdamLoops *kFusedAdam = &kFusedAdamLoops;

#else

constexpr const FusedAdamLoops *kFusedAdam = nullptr;

#endif

}  // namespace
}  // namespace octavo
