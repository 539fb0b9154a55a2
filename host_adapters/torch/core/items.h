// Parameters of one call of an optimizer or of a reduction, with their memory.
#pragma once

#include <deque>
#include <vector>

#include "arguments.h"

namespace octavo::core {

// weights, gradients: torch's own tensors of the parameters whose value or gradient is not in a
// slot, in the order of the ids.
struct ParameterSet {
  const std::vector<int64_t> &ids;
  const Views &weights;
  const Views &gradients;
};

// The hyperparameters of one group in f32 [groups, OCTAVO_HYPER_COUNT]; throws when out of range.
float *row_of(View hyper, int64_t group);

// Throws unless the natives are those of the verb's lists.
class Items {
 public:
  // groups: the row of `hyper` of each parameter; null with none.
  Items(const Entry &e, uint32_t verb, const ParameterSet &given, View hyper = View(),
        const std::vector<int64_t> *groups = nullptr);

  const octavo_parameter_item *data() const { return items_.data(); }
  uint64_t count() const { return items_.size(); }
  const std::vector<uint32_t> &ids() const { return ids_; }

 private:
  std::deque<Pointers> lists_;  // stay where they are
  std::vector<octavo_parameter_item> items_;
  std::vector<uint32_t> ids_;
};

}  // namespace octavo::core
