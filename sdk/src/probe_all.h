// Probes of every plugin that the search path holds, for `octavo probe`.
#pragma once

#include <string>
#include <vector>

#include "discovery.h"
#include "probe.h"
#include "trust.h"

namespace octavo {

struct ProbedPlugin {
  std::string name;
  std::string manifest;
  ProbeReport report;
};

// In order of precedence, without shadowed ones. What manifest or trust refuses is not run.
std::vector<ProbedPlugin> probe_all(const Config &config, const TrustPolicy &trust,
                                    const Discovery &discovery, const Hardware &hardware);

}  // namespace octavo
