// Probe: a stranger's plugin first runs in a helper process; its verdict is remembered.
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "hardware.h"
#include "manifest.h"
#include "probe_wire.h"
#include "verdict.h"

namespace octavo {

struct ProbeReport {
  bool accepted = false;
  std::string how;  // "probed in 3 ms", "remembered", "part of this installation", ...
  ProbeStage stage = ProbeStage::kNone;
  std::vector<Verdict> verdicts;      // declining ones only
  std::vector<std::string> warnings;  // what the plugin changes in its process
  std::vector<std::string> notes;
};

// As plugins.probe says. `sha256` is the library's. Thread-safe; does not throw.
ProbeReport probe_plugin(const Config &config, const Hardware &hardware, const Manifest &manifest,
                         const std::string &sha256);

// The same for a library that is about to be loaded: passes warnings and notes to the host, appends
// verdicts, and returns whether it may be loaded.
bool check_probe(const Config &config, const Hardware &hardware, const Manifest &manifest,
                 const std::string &sha256, const octavo_host *host,
                 std::vector<Verdict> &verdicts);

}  // namespace octavo
