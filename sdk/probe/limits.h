// What the helper may use: set before the first byte of plugin code runs.
#pragma once

#include <string>

namespace octavo::probe {

// Address space, processor time, processes, no core file, no growing file. A limit that the system
// refuses is left out: the deadline of the caller holds anyway.
void set_limits(const std::string &library, int timeout_ms);

// Descriptors that the caller had open without close-on-exec, from `first` on.
void close_descriptors(int first);

}  // namespace octavo::probe
