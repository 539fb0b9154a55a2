// What a saturating cast hides, shown where torch has it: Inf and NaN of an operand are a NaN in
// what the call gives, so a loss, a norm or a GradScaler finds them as in a plain model, and a
// program that drops such a batch has dropped it. On the CPU, where looking at the slot of role
// NONFINITE waits for nothing. On other devices the slot says it at the end of a step.
#pragma once

#include "entry.h"

namespace octavo::core {

// In that slot in place of 1: what casts met is a NaN in results.
constexpr float kShown = 0.5F;

// After a forward that records: the rows of y of rows of x that are not finite, and the columns of
// rows of w that are not. weight: torch's own, or none.
void show_nonfinite(const Entry &e, const octavo_tensor &x, View weight, bool transposed,
                    octavo_tensor *y);

// After a backward: an element of each gradient that it gives; none where the weight's gradient is
// in a slot, which cannot hold a NaN.
void show_nonfinite(const Entry &e, const struct Gradients &gradients);

}  // namespace octavo::core
