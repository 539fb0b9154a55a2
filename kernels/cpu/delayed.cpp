/* delayed_scale_update: update_delayed_column of kernels/format for many columns at once.
 *
 * A column of the history is strided, so a band of columns is walked row by row: each row is read
 * once, and the same pass folds it into the maxima and moves the next row into its place.
 */
#include "kernels/format/delayed.h"

#include <algorithm>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/verbs.h"

namespace octavo {
namespace {

constexpr int64_t kBand = 512; /* columns; what is kept of them fits the first cache */

void update_band(const Context &context, const octavo_delayed_scale_update &c, int64_t first,
                 int64_t count) {
  const int64_t columns = static_cast<int64_t>(c.n);
  const int64_t length = static_cast<int64_t>(c.length);
  const DelayedRule rule = delayed_rule(c);
  alignas(64) float newest[kBand];
  alignas(64) float largest[kBand];
  alignas(64) int32_t rolls[kBand];
  alignas(64) int32_t has_nan[kBand];
  for (int64_t i = 0; i < count; ++i) {
    const DelayedEntry entry = delayed_entry(c.amax[first + i], rule);
    newest[i] = entry.newest;
    rolls[i] = entry.rolls ? 1 : 0;
    largest[i] = entry.newest > 0.0f ? entry.newest : 0.0f;
    has_nan[i] = is_nan(entry.newest) ? 1 : 0;
    if (entry.rolls) c.history[first + i] = 0.0f;
  }
  if (length > 1)
    context.level->roll_history(c.history + columns + first, length - 1, columns, newest, rolls,
                                count, largest, has_nan);
  for (int64_t i = 0; i < count; ++i) {
    if (rolls[i] == 0) continue;
    float *counter = c.counter == nullptr ? nullptr : c.counter + first + i;
    /* An amax of 0 keeps the scale, as a NaN in the window does. */
    const float window = has_nan[i] != 0 && nan_keeps_scale(rule) ? 0.0f : largest[i];
    finish_delayed_column({c.amax + first + i, nullptr, c.scale + first + i, counter, 0, 0}, rule,
                          rule.use_max ? window : newest[i]);
  }
}

}  // namespace

octavo_status delayed_scale_update(const Context &context, const octavo_delayed_scale_update &c) {
  const int64_t columns = static_cast<int64_t>(c.n);
  const int64_t length = static_cast<int64_t>(c.length);
  return context.for_ranges(columns, divide_up(kGrainElements, length),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t first = begin; first < end; first += kBand) {
                                update_band(context, c, first, std::min(kBand, end - first));
                              }
                            });
}

}  // namespace octavo
