/* kernels/format/delayed.h: delayed scaling, the update of one column of a history pool.
 *
 * What happens to an amax of 0, Inf or NaN differs between libraries and gives different results on
 * ordinary data: the flags OCTAVO_HISTORY_... say it. MS-AMP 0.4.0 increments its counters and then
 * resets those of an Inf or NaN, so they end the update at 0 (msamp/optim/optimizer.py,
 * _update_scaling_factors). No library needs COUNT_FROM_ONE.
 */
#pragma once

#include "kernels/format/scale_rules.h"
#include "octavo/kernels.h"

namespace octavo {

/* One column of the pool. Row i of the history is history[i * stride]. counter may be null. */
struct DelayedColumn {
  float *amax;
  float *history;
  float *scale;
  float *counter;
  int64_t stride;
  int64_t length;
};

struct DelayedRule {
  float format_max;
  int32_t margin;
  uint32_t rule;
  uint32_t history; /* OCTAVO_HISTORY_... */
  bool use_max;
};

OCTAVO_HOST_DEVICE static inline DelayedRule delayed_rule(const octavo_delayed_scale_update &c) {
  return {c.format_max, c.margin, c.rule, c.history_flags, c.use_max != 0};
}

/* The largest value of all rows, including the oldest. */
OCTAVO_HOST_DEVICE static inline float window_maximum(const DelayedColumn &c, bool nan_propagates) {
  float largest = 0.0f;
  for (int64_t row = 0; row < c.length; ++row) {
    const float value = c.history[row * c.stride];
    if (nan_propagates && is_nan(value)) return value;
    if (value > largest) largest = value;
  }
  return largest;
}

/* What an update does to a column, as far as it depends on the live amax alone. */
struct DelayedEntry {
  bool rolls;   /* false: nothing changes */
  float newest; /* the value that enters the history */
};

OCTAVO_HOST_DEVICE static inline DelayedEntry delayed_entry(float live, const DelayedRule &r) {
  const bool is_dropped = (r.history & OCTAVO_HISTORY_DROP_NONFINITE) != 0 && !is_finite(live);
  return {(r.history & OCTAVO_HISTORY_SKIP_ZERO) == 0 || live != 0.0f, is_dropped ? 0.0f : live};
}

OCTAVO_HOST_DEVICE static inline bool nan_keeps_scale(const DelayedRule &r) {
  return (r.history & OCTAVO_HISTORY_NAN_KEEPS) != 0;
}

/* The rest of the update of a column that rolls. `chosen` is the amax chosen from its window. */
OCTAVO_HOST_DEVICE static inline void finish_delayed_column(const DelayedColumn &c,
                                                            const DelayedRule &r, float chosen) {
  const float live = *c.amax;
  *c.scale = scale_by_rule(r.rule, chosen, *c.scale, r.format_max, r.margin);
  *c.amax = 0.0f;
  if (c.counter == nullptr) return;
  const float restarted = (r.history & OCTAVO_HISTORY_COUNT_FROM_ONE) != 0 ? 1.0f : 0.0f;
  *c.counter = is_finite(live) ? *c.counter + 1.0f : restarted;
}

OCTAVO_HOST_DEVICE static inline void update_delayed_column(const DelayedColumn &c,
                                                            const DelayedRule &r) {
  const DelayedEntry entry = delayed_entry(*c.amax, r);
  if (!entry.rolls) return;
  c.history[0] = entry.newest;
  const float chosen = r.use_max ? window_maximum(c, nan_keeps_scale(r)) : entry.newest;

  /* Row 1 is the oldest and drops out; the live value becomes the newest. */
  for (int64_t row = 1; row + 1 < c.length; ++row) {
    c.history[row * c.stride] = c.history[(row + 1) * c.stride];
  }
  if (c.length > 1) c.history[(c.length - 1) * c.stride] = entry.newest;
  c.history[0] = 0.0f;
  finish_delayed_column(c, r, chosen);
}

}  // namespace octavo
