// A failure becomes what torch throws: a RuntimeError in Python. Its text holds "octavo status N",
// from which the Python package takes the type of its own exception.
#include "error.h"

#include <torch/headeronly/util/Exception.h>

#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/host.h"

namespace octavo::ops {

std::string take_text() {
  std::string all;
  for (const core::Said &said : core::take_diagnostics()) {
    if (said.severity < OCTAVO_SEVERITY_WARNING) continue;
    if (!all.empty()) all += '\n';
    all += said.domain + ": " + said.text;
  }
  return all;
}

}  // namespace octavo::ops

void octavo::core::raise(octavo_status status, const std::string &what) {
  const std::string said = ops::take_text();
  STD_TORCH_CHECK(false, "[octavo status ", status, "] ", what, said.empty() ? "" : ": ", said);
  __builtin_unreachable();
}
