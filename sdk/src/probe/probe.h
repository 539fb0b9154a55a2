// Probe: a stranger's plugin first runs in a helper process; its verdict is remembered.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/base/verdict.h"
#include "sdk/src/config/config.h"
#include "sdk/src/machine/hardware.h"
#include "sdk/src/plugin/discovery.h"
#include "sdk/src/plugin/manifest.h"
#include "sdk/src/probe/probe_wire.h"
#include "sdk/src/trust/trust.h"

namespace octavo {

struct ProbeReport {
  bool accepted = false;
  std::string how;  // "probed in 3 ms", "remembered", "part of this installation", ...
  ProbeStage stage = ProbeStage::kNone;
  std::vector<Verdict> verdicts;      // declining ones only
  std::vector<std::string> warnings;  // what it changes in its process, what was not tried
  std::vector<std::string> notes;
};

// By plugins.probe. `sha256` is the library's. Thread-safe; does not throw.
ProbeReport probe_plugin(const Config &config, const Hardware &hardware, const Manifest &manifest,
                         const std::string &sha256);

// The same for a library that is about to be loaded: passes warnings and notes to the host, appends
// verdicts, and says how it went.
struct CheckedProbe {
  std::optional<Stage> refused;  // the stage that refuses it; nothing when it may be loaded
  std::string how;
  std::vector<std::string> warnings;  // for the report
};
CheckedProbe check_probe(const Config &config, const Hardware &hardware, const Manifest &manifest,
                         const std::string &sha256, const octavo_host *host,
                         std::vector<Verdict> &verdicts);

struct ProbedPlugin {
  std::string name;
  std::string manifest;
  ProbeReport report;
};

// In order of precedence, without shadowed ones. What manifest or trust refuses is not run.
std::vector<ProbedPlugin> probe_all(const Config &config, const TrustPolicy &trust,
                                    const Discovery &discovery, const Hardware &hardware);

}  // namespace octavo
