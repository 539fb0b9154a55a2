/* kernels/cpu/level_adam_layouts.h: the layouts that level_adam_fused.h is compiled for; included
 * by level.cpp only.
 *
 * A plan that none of them fits is stepped over segments of fp32, with the same bits.
 */
#pragma once

#include "kernels/cpu/level_adam_blocks.h"

namespace octavo {
namespace {

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
