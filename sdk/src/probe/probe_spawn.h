// Runs octavo-probe once: one child in a process group of its own, one pipe, one deadline.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/probe/probe_wire.h"

namespace octavo {

// The descriptor in the helper that its records go to.
constexpr int kProbePipe = 3;

struct SpawnedProbe {
  int error = 0;  // of the system, when the helper could not be started
  bool started = false;
  bool late = false;   // ended by the deadline
  std::string fault;   // empty: the helper ended as agreed; else what it did: "ended by signal 11"
  ProbeAnswer answer;  // what came before the fault, too
  std::string said;    // the last lines on its standard error; empty: none
};

// arguments[0] is the helper's path. When this returns, no process of the helper's group lives.
SpawnedProbe spawn_probe(const std::vector<std::string> &arguments, int timeout_ms);

}  // namespace octavo
