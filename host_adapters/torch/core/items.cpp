// Natives are checked against what the run was sealed with.
#include "items.h"

namespace octavo::core {
namespace {

void *address(const Entry &e, const Native &native, const Views &from, size_t at, int64_t id) {
  const bool is_weight = native.role == OCTAVO_ROLE_WEIGHT;
  const std::string what = e.name(OCTAVO_OWNER_PARAMETER, id) + (is_weight ? "" : ", its gradient");
  if (at >= from.size()) raise(OCTAVO_INVALID, what + ": expected torch's tensor, found none");
  const View t = from[at];
  check_dense(e, t, what.c_str());
  if (t.dtype() != native.dtype || t.numel() != native.elements)
    raise(OCTAVO_INVALID,
          what + ": expected " + std::to_string(native.elements) +
              " elements of the dtype that it had at octavo.prepare, found " +
              std::to_string(t.numel()) +
              " or another dtype; was the model moved or cast after octavo.prepare?");
  return native.is_written ? t.mutable_data() : const_cast<void *>(t.data());
}

}  // namespace

float *row_of(View hyper, int64_t group) {
  if (group < 0 || (group + 1) * OCTAVO_HYPER_COUNT > hyper.numel())
    raise(OCTAVO_INVALID, "hyper: expected a row for group " + std::to_string(group) + ", found " +
                              std::to_string(hyper.numel()) + " values");
  return static_cast<float *>(hyper.mutable_data()) + group * OCTAVO_HYPER_COUNT;
}

Items::Items(const Entry &e, uint32_t verb, const ParameterSet &given, View hyper,
             const std::vector<int64_t> *groups) {
  size_t next_weight = 0, next_gradient = 0;
  for (size_t i = 0; i < given.ids.size(); ++i) {
    const int64_t id = given.ids[i];
    const List &list = list_of(e, verb, OCTAVO_OWNER_PARAMETER, id);
    Pointers &pointers = lists_.emplace_back(e, list, true);
    for (const Native &native : list.natives) {
      const bool is_weight = native.role == OCTAVO_ROLE_WEIGHT;
      const Views &from = is_weight ? given.weights : given.gradients;
      size_t &next = is_weight ? next_weight : next_gradient;
      pointers.set(native.at, address(e, native, from, next++, id));
    }
    octavo_parameter_item item = {};
    item.parameter = static_cast<uint32_t>(id);
    item.slots = pointers.data();
    if (hyper) item.hyper = row_of(hyper, (*groups)[i]);
    items_.push_back(item);
    ids_.push_back(item.parameter);
  }
  if (next_weight != given.weights.size() || next_gradient != given.gradients.size())
    raise(OCTAVO_INVALID, "parameters: expected " + std::to_string(next_weight) + " weights and " +
                              std::to_string(next_gradient) + " plain gradients, found " +
                              std::to_string(given.weights.size()) + " and " +
                              std::to_string(given.gradients.size()));
}

}  // namespace octavo::core
