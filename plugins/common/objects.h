// The parameters and linears of a session, and what is wrong with one that a host adds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "setup.h"

namespace octavo::plugin {

// What every backend keeps of a parameter; its own Parameter derives from it.
struct ParameterBase {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  uint32_t dtype = 0;
  uint32_t gradient_dtype = 0;
  uint32_t flags = 0;

  ParameterBase() = default;
  explicit ParameterBase(const octavo_parameter_desc &d)
      : name(view(d.name)),
        rows(d.rows),
        cols(d.cols),
        dtype(d.dtype),
        gradient_dtype(d.gradient_dtype),
        flags(d.flags) {}
  bool is_linear_weight() const { return (flags & OCTAVO_PARAMETER_LINEAR_WEIGHT) != 0; }
  bool is_frozen() const { return (flags & OCTAVO_PARAMETER_FROZEN) != 0; }
};

struct LinearBase {
  std::string name;
  uint32_t weight = 0;  // parameter id

  LinearBase() = default;
  explicit LinearBase(const octavo_linear_desc &d) : name(view(d.name)), weight(d.weight) {}
};

// Names are checkpoint keys or labels, so two objects of one kind cannot share one.
template <typename Object>
bool has_name(const std::vector<Object> &objects, std::string_view name) {
  for (const Object &o : objects)
    if (o.name == name) return true;
  return false;
}

// Why a host may not add this, with "expected ..., found ..."; empty: it may. The dtype is not
// looked at, since an unknown one is declined and not refused.
std::string parameter_fault(const octavo_parameter_desc &d);

template <typename Parameter>
std::string parameter_fault(const octavo_parameter_desc &d,
                            const std::vector<Parameter> &parameters) {
  std::string fault = parameter_fault(d);
  if (fault.empty() && has_name(parameters, view(d.name)))
    fault = "expected a name that no other parameter has";
  return fault.empty() ? fault : "add_parameter \"" + std::string(view(d.name)) + "\": " + fault;
}

template <typename Parameter, typename Linear>
std::string linear_fault(const octavo_linear_desc &d, const std::vector<Parameter> &parameters,
                         const std::vector<Linear> &linears) {
  std::string fault;
  if (d.flags != 0)
    fault = "flags 0, found " + std::to_string(d.flags);
  else if (d.weight >= parameters.size() || !parameters[d.weight].is_linear_weight())
    fault = "the id of a parameter added as LINEAR_WEIGHT, found " + std::to_string(d.weight);
  else if (has_name(linears, view(d.name)))
    fault = "a name that no other linear has";
  return fault.empty() ? fault
                       : "add_linear \"" + std::string(view(d.name)) + "\": expected " + fault;
}

}  // namespace octavo::plugin
