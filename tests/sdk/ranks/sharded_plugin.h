// The reductions that sharded_plugin.cpp plans, by the name of their fault.
//
// Only the plugin includes this: tests speak to it through liboctavo.
#pragma once

#include <string>

#include "octavo/draft/gradients.h"

// state_bytes is 8 times the number of parameters, at least 8.
inline octavo_status plan_stages(const std::string &fault, octavo_gradient_plan &plan) {
  octavo_status status = OCTAVO_OK;
  const auto stage = [&](uint32_t collective, uint32_t dtype, uint64_t send, uint64_t recv) {
    const octavo_gradient_stage s = {
        sizeof(octavo_gradient_stage), OCTAVO_KIND_GRADIENT_STAGE, collective, dtype, send, recv};
    if (status == OCTAVO_OK) status = plan.stage(plan.ctx, &s);
  };
  const uint64_t world = plan.world;
  plan.state_bytes = plan.count > 1 ? 8 * plan.count : 8;
  if (fault == "plan_refuses") return OCTAVO_NO_RESOURCE;
  // 5 floats; 4 bytes for every rank; 10 halves gathered; nothing.
  stage(OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_F32, 5, 5);
  stage(OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, 4 * world, 4 * world);
  if (fault == "unknown_collective") stage(6, OCTAVO_F32, 1, 1);
  if (fault == "unknown_dtype") stage(OCTAVO_COLLECTIVE_ALL_GATHER, 0x6363, 1, world);
  if (fault == "too_long")
    stage(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, UINT64_MAX / 4, UINT64_MAX / 4);
  if (fault == "gather_counts") stage(OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, 3, 3 * world + 1);
  if (fault == "all_to_all_counts") stage(OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, 1, 1);
  if (fault == "scatter_counts")
    stage(OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM, OCTAVO_F32, 3 * world + 1, 3);
  if (fault == "reduce_counts") stage(OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, 3, 4);
  stage(OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_F16, 10, 10 * world);
  stage(OCTAVO_COLLECTIVE_NONE, OCTAVO_U8, 0, 0);
  if (fault == "long_none") stage(OCTAVO_COLLECTIVE_NONE, OCTAVO_U8, 1000, 0);
  return status;
}
