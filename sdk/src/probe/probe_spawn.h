// Runs octavo-probe once: one child in a process group of its own, one pipe, one deadline.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/file/privilege_file.h"
#include "sdk/src/probe/probe_wire.h"

namespace octavo {

// The descriptor in the helper that its records go to.
constexpr int kProbePipe = 3;
// That of the checked library: what the helper opens is what its caller has checked.
constexpr int kProbeLibrary = 4;
// Its exit code when its own code had no memory, or could not write: no word about the plugin.
constexpr int kProbeShort = 75;

struct SpawnedProbe {
  int error = 0;  // of the system, when the helper could not be started
  bool started = false;
  bool late = false;       // ended by the deadline
  bool was_short = false;  // ended with kProbeShort
  std::string fault;   // empty: the helper ended as agreed; else what it did: "ended by signal 11"
  ProbeAnswer answer;  // what came before the fault, too
  std::string said;    // the last lines on its standard error; empty: none
};

// arguments[0] is the helper's path; `library`, if any, becomes its descriptor kProbeLibrary. When
// this returns or throws, no process of the helper's group lives. Throws ResourceUnavailable when
// the helper cannot be watched.
SpawnedProbe spawn_probe(const std::vector<std::string> &arguments, int timeout_ms,
                         const CheckedFile *library = nullptr);

}  // namespace octavo
