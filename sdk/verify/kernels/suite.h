// The checks on a plugin of kernels, each in a process that loads it anew.
#pragma once

#include "../suite.h"

namespace octavo::conformance::kernels {

// What its manifest states.
struct Plugin {
  std::string library;
  uint32_t device_type = 0;
  // Of a layer: a run on it, and one on the kernels below. The checks meet the table of both, as
  // backends do.
  const octavo_open_desc *run = nullptr, *below = nullptr;
};

// Settings as for a backend; `backend` is the plugin's id. A plugin whose device does not open ends
// the suite after its first check.
void run_suite(const Settings &settings, const Plugin &plugin,
               const std::function<void(const Record &)> &done);

}  // namespace octavo::conformance::kernels
