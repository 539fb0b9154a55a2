/* kernels/format/delayed.h: delayed scaling, the update of one column of a history pool.
 *
 * Four variants exist; they give different results on ordinary data.
 *   - QUOTIENT, POW2 (TE's fused kernel): an amax of 0 changes nothing; NaN in the history is
 * ignored.
 *   - RECIPROCAL (TE's unfused path): an amax of 0 rolls like any value; NaN in the window keeps
 * the scale.
 *   - MSAMP: an amax of 0 changes nothing; an infinite or NaN amax enters as 0 and resets the
 * counter to 0.
 *   - MSAMP04: as MSAMP, but an amax of 0 rolls, and the counter is reset to 1: MS-AMP 0.4.0 resets
 *     it before it computes the scales and increments it at the end of the same update.
 */
#pragma once

#include "kernels/format/scale_rules.h"

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
  bool use_max;
};

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

OCTAVO_HOST_DEVICE static inline DelayedEntry delayed_entry(float live, uint32_t rule) {
  const bool is_msamp04 = rule == OCTAVO_RULE_MSAMP04;
  const bool zero_rolls = rule == OCTAVO_RULE_RECIPROCAL || is_msamp04;
  const bool replaces_nonfinite = rule == OCTAVO_RULE_MSAMP || is_msamp04;
  return {zero_rolls || live != 0.0f, replaces_nonfinite && !is_finite(live) ? 0.0f : live};
}

/* Whether a NaN anywhere in the window keeps the scale. */
OCTAVO_HOST_DEVICE static inline bool nan_keeps_scale(uint32_t rule) {
  return rule == OCTAVO_RULE_RECIPROCAL || rule == OCTAVO_RULE_MSAMP04;
}

/* The rest of the update of a column that rolls. `chosen` is the amax chosen from its window. */
OCTAVO_HOST_DEVICE static inline void finish_delayed_column(const DelayedColumn &c,
                                                            const DelayedRule &r, float chosen) {
  const float live = *c.amax;
  *c.scale = scale_by_rule(r.rule, chosen, *c.scale, r.format_max, r.margin);
  *c.amax = 0.0f;
  if (c.counter == nullptr) return;
  const float restarted = r.rule == OCTAVO_RULE_MSAMP04 ? 1.0f : 0.0f;
  *c.counter = is_finite(live) ? *c.counter + 1.0f : restarted;
}

OCTAVO_HOST_DEVICE static inline void update_delayed_column(const DelayedColumn &c,
                                                            const DelayedRule &r) {
  const DelayedEntry entry = delayed_entry(*c.amax, r.rule);
  if (!entry.rolls) return;
  c.history[0] = entry.newest;
  const float chosen = r.use_max ? window_maximum(c, nan_keeps_scale(r.rule)) : entry.newest;

  /* Row 1 is the oldest and drops out; the live value becomes the newest. */
  for (int64_t row = 1; row + 1 < c.length; ++row) {
    c.history[row * c.stride] = c.history[(row + 1) * c.stride];
  }
  if (c.length > 1) c.history[(c.length - 1) * c.stride] = entry.newest;
  c.history[0] = 0.0f;
  finish_delayed_column(c, r, chosen);
}

}  // namespace octavo
