// The checks on one plugin, which liboctavo opens anew for each of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "record.h"

namespace octavo::conformance {

struct Settings {
  octavo_open_desc open{};        // the plugin and its options; the host is the suite's
  std::string backend;            // its id
  std::vector<std::string> only;  // checks; empty: all
  uint64_t seed = 1;
  double timeout = 300;     // seconds a check
  bool in_process = false;  // for debuggers: nothing is caught
};

// Runs the checks in order and passes each record on. A plugin that does not load ends the suite
// after its first check.
void run_suite(const Settings &settings, const std::function<void(const Record &)> &done);

}  // namespace octavo::conformance
