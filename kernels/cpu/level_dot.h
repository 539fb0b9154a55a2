/* kernels/cpu/level_dot.h: the loops of dot_loops.h; included by level.cpp only. */
#pragma once

#include "kernels/cpu/dot_loops.h"

#ifdef __AVX512BF16__
#include "kernels/cpu/level_dot_finish.h"
#include "kernels/cpu/level_dot_k_major.h"
#include "kernels/cpu/level_dot_packed.h"
#include "kernels/cpu/level_dot_panel.h"
#include "kernels/cpu/level_dot_thin.h"
#include "kernels/cpu/level_dot_tile.h"
#endif

namespace octavo {
namespace {

#ifdef __AVX512BF16__

/* 1 + 2^-24 + 2^-24, from the odd element on: rounded after each product it stays 1, in one sum it
 * becomes 1 + 2^-23. With the even element first, 2^-24 + 2^-24 + 1 would become that, too. */
bool is_chain() {
  const __m512i tiny_then_one = _mm512_set1_epi32(0x33803F80); /* odd 2^-24, even 1 */
  const __m512i tiny_then_tiny = _mm512_set1_epi32(0x33803380);
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F803F80));
  const __m512 rounded_twice =
      _mm512_dpbf16_ps(_mm512_set1_ps(1.0f), reinterpret_cast<__m512bh>(tiny_then_tiny), ones);
  const __m512 odd_first =
      _mm512_dpbf16_ps(_mm512_set1_ps(0x1p-24f), reinterpret_cast<__m512bh>(tiny_then_one), ones);
  return _mm512_cmpneq_ps_mask(rounded_twice, _mm512_set1_ps(1.0f)) == 0 &&
         _mm512_cmpneq_ps_mask(odd_first, _mm512_set1_ps(1.0f + 0x1p-23f)) == 0;
}

constexpr DotLoops make_dot_loops() {
  DotLoops loops = {};
  loops.is_chain = &is_chain;
  loops.pack_row = &pack_dot_row;
  loops.pack_panel = &pack_dot_panel;
  loops.pack_k_major_panel = &pack_k_major_dot_panel;
  loops.pack_k_major_rows = &pack_k_major_dot_rows;
  loops.pack_codes = &pack_code_panel;
  loops.decode_codes = &decode_code_panel;
  loops.measure = &measure_pairs;
  loops.finish = &finish_dot_tile;
  fill_dot_tiles<kDotRows>(&loops);
  fill_thin_tiles<kThinRows>(&loops);
  return loops;
}

constexpr DotLoops kDotLoops = make_dot_loops();
constexpr const DotLoops *kDot = &kDotLoops;

#else

constexpr const DotLoops *kDot = nullptr;

#endif

}  // namespace
}  // namespace octavo
