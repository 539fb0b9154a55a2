/* kernels/cpu/level_update.h: the loops of update_loops.h; included by level.cpp only. */
#ifndef OCTAVO_KERNELS_CPU_LEVEL_UPDATE_H
#define OCTAVO_KERNELS_CPU_LEVEL_UPDATE_H

#include "kernels/cpu/update_loops.h"

namespace octavo {
namespace {

constexpr UpdateLoops kUpdateLoops = {};

}  // namespace
}  // namespace octavo

#endif
