// octavo/hpp/plugin/scaling.hpp: delayed scaling: the next scales from the amax of this step.
#ifndef OCTAVO_HPP_PLUGIN_SCALING_HPP
#define OCTAVO_HPP_PLUGIN_SCALING_HPP

#include "octavo/hpp/plugin/calls.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// How a scale follows from a history; octavo_delayed_scale_update says what each means.
struct DelayedScaling {
  float format_max = 448;
  uint32_t rule = OCTAVO_RULE_QUOTIENT;
  uint32_t history = OCTAVO_HISTORY_TE;  // what happens to an amax of 0, Inf or NaN
  int32_t margin = 0;
  bool use_max = true;  // else the most recent amax
};

// In finish_step: the pools that Slots::observe stated with a history, of every seal. Clears amax.
inline void update_scales(Pass &p, const StepCall &c, const ObservedSlot &slot,
                          const DelayedScaling &how) {
  // The pools of one operand are neighbours in the session's list.
  c.each_pool(slot.history, [&](size_t, const StepCall::Pool &history) {
    auto u = p.call<octavo_delayed_scale_update>(OCTAVO_KIND_DELAYED_SCALE_UPDATE);
    u.amax = c.entry(history.at - 1);
    u.history = history.data;
    u.scale = c.entry(history.at + 1);
    if (slot.counter.rule != OCTAVO_NONE) u.counter = c.entry(history.at + 2);
    u.n = history.columns;
    u.length = history.rows;
    u.format_max = how.format_max;
    u.margin = how.margin;
    u.use_max = how.use_max ? 1 : 0;
    u.rule = how.rule;
    u.history_flags = how.history;
    p.run(&octavo_kernels::delayed_scale_update, u);
  });
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
