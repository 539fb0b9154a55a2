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

constexpr UpdateLoops kUpdateLoops = {&step_rows, kFusedAdam, kStateLoops,  kRoundingLoops,
                                      sum_codes,  &add_each,  &add_squares, &add_halves};

}  // namespace
}  // namespace octavo
