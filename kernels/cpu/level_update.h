/* kernels/cpu/level_update.h: the loops of update_loops.h; included by level.cpp only. */
#pragma once

#include "kernels/cpu/level_adam.h"
#include "kernels/cpu/level_adam_layouts.h"
#include "kernels/cpu/level_rounding.h"
#include "kernels/cpu/level_states.h"
#include "kernels/cpu/level_sums.h"
#include "kernels/cpu/update_loops.h"

namespace octavo {
namespace {

uint8_t highest_code(const uint8_t *codes, int64_t n) {
  uint8_t highest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t code = codes[i] & 0x7F;
    highest = code > highest ? code : highest;
  }
  return highest;
}

constexpr UpdateLoops kUpdateLoops = {&step_rows,     kFusedAdam,    kStateLoops,
                                      kRoundingLoops, &highest_code, sum_codes,
                                      &add_each,      &add_squares,  &add_halves};

}  // namespace
}  // namespace octavo
