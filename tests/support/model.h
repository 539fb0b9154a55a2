// Describes parameters and linears to a run, and keeps what the run answered.
#pragma once

#include <cstring>
#include <string>

#include "tests/support/request.h"

namespace octavo::test {

struct Answer {
  octavo_status status = OCTAVO_INTERNAL;
  uint32_t id = 12345;
  octavo_verdict verdict = {};
};

// Borrows the name.
inline octavo_parameter_desc parameter_desc(const char *name, int64_t rows, int64_t cols,
                                            uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT,
                                            uint32_t dtype = OCTAVO_F32) {
  octavo_parameter_desc d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_PARAMETER_DESC;
  d.name = {name, std::strlen(name)};
  d.rows = rows;
  d.cols = cols;
  d.dtype = dtype;
  d.gradient_dtype = OCTAVO_F32;
  d.flags = flags;
  return d;
}

inline octavo_verdict empty_verdict() {
  octavo_verdict v{};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  return v;
}

inline Answer add_parameter(octavo_run *run, const octavo_parameter_desc &d) {
  Answer a;
  a.verdict = empty_verdict();
  a.status = octavo_add_parameter(run, &d, &a.verdict, &a.id);
  return a;
}

inline Answer add_weight(octavo_run *run, const std::string &name, int64_t rows, int64_t cols) {
  return add_parameter(run, parameter_desc(name.c_str(), rows, cols));
}

inline Answer add_linear(octavo_run *run, const std::string &name, uint32_t weight) {
  octavo_linear_desc d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_LINEAR_DESC;
  d.name = borrow(name);
  d.weight = weight;
  Answer a;
  a.verdict = empty_verdict();
  a.status = octavo_add_linear(run, &d, &a.verdict, &a.id);
  return a;
}

}  // namespace octavo::test
