// octavo.optimizer/2 on torch's tensors: steps of the weights and moments that a backend keeps.
// Every function throws, also for a backend without the interface.
#pragma once

#include <cstdint>
#include <vector>

#include "items.h"

namespace octavo::core {

// One step. hyper: f32 [groups, OCTAVO_HYPER_COUNT]; groups: the row of each parameter; skip: f32
// [1] or none, not 0: nothing changes.
void optimizer_step(const Entry &e, const ParameterSet &parameters,
                    const std::vector<int64_t> &groups, View hyper, View skip);

// Adds the squares of all gradients to sum, f32 [1].
void sum_of_squares(const Entry &e, const ParameterSet &parameters, View sum);

// From sums of squares to the norm, the factor of each group and the skip flag. sum: f32, added up;
// nonfinite, norm, skip: f32 [1] or none.
void prepare_step(const Entry &e, View sum, View nonfinite, View norm, View skip, View hyper,
                  double factor, double max_norm);

// The values of one role of a parameter in slots: to a plain tensor of its shape, and back.
void read_parameter(const Entry &e, int64_t parameter, int64_t role, View plain);
void write_parameter(const Entry &e, int64_t parameter, int64_t role, View plain);

}  // namespace octavo::core
