/* kernels/cpu/level_lanes.h: sets of lanes that a comparison of fp32 vectors finds, and arithmetic
 * of bounds; included by level.cpp only.
 */
#pragma once

#include "kernels/cpu/level_update_values.h"

#ifdef OCTAVO_CAST_VECTORS

namespace octavo {
namespace {

/* The largest unsigned pattern of all lanes. */
inline int32_t highest_lane(UpdateBits bits) {
  return largest_lane(as_lanes(bits));
}

#ifdef OCTAVO_NEON
using LaneSet = UpdateBits; /* all bits of a lane, or none */
inline bool is_empty(LaneSet lanes) {
  return largest_lane(as_lanes(lanes)) == 0;
}
inline int count_of(LaneSet lanes) {
  return -vaddvq_s32(lanes);
}
/* Not a number: not below, too. */
inline LaneSet lanes_not_below(Vector a, Vector b) {
  return ~static_cast<UpdateBits>(a < b);
}
/* The lanes that are above the limit or not a number. */
inline LaneSet lanes_beyond(Vector values, float limit) {
  return ~static_cast<UpdateBits>(values <= Vector{} + limit);
}
inline Vector above_zero(Vector a) {
  return vmaxnmq_f32(a, Vector{});
}
/* a * b + c with one rounding; for bounds only, which no result shows. */
inline Vector fused_sum(Vector a, Vector b, Vector c) {
  return vfmaq_f32(c, a, b);
}
#else
using LaneSet = LaneMask;
inline bool is_empty(LaneSet lanes) {
  return lanes == 0;
}
inline int count_of(LaneSet lanes) {
  return __builtin_popcount(static_cast<unsigned>(lanes));
}
#ifdef __AVX512BW__
inline LaneSet lanes_not_below(Vector a, Vector b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ);
}
inline LaneSet lanes_beyond(Vector values, float limit) {
  return _mm512_cmp_ps_mask(values, _mm512_set1_ps(limit), _CMP_NLE_UQ);
}
inline Vector above_zero(Vector a) {
  return _mm512_max_ps(a, Vector{});
}
inline Vector fused_sum(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
#else
inline LaneSet lanes_not_below(Vector a, Vector b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}
inline LaneSet lanes_beyond(Vector values, float limit) {
  return _mm256_movemask_ps(_mm256_cmp_ps(values, _mm256_set1_ps(limit), _CMP_NLE_UQ));
}
inline Vector above_zero(Vector a) {
  return _mm256_max_ps(a, Vector{});
}
inline Vector fused_sum(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
#endif
#endif

}  // namespace
}  // namespace octavo

#endif
