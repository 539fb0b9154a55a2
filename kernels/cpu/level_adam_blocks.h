/* kernels/cpu/level_adam_blocks.h: the second pass of an Adam step whose moments are in blocks of
 * 256, each with the scale of its new values; included by level.cpp only.
 *
 * The new moments of a block stay in fp32 on the stack until its largest ones are known. The weight
 * is written at once.
 */
#pragma once

#include "kernels/cpu/level_adam_fused.h"
#include "kernels/format/block_state.h"

namespace octavo {
namespace {

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

}  // namespace
}  // namespace octavo
