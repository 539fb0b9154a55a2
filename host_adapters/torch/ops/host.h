// The host that backends see in torch: diagnostics are kept for the calling thread, and CPU kernels
// run on torch's own threads.
#pragma once

#include <string>

#include "octavo/host.h"

namespace octavo::ops {

// Lives until the process ends. THREAD_ANY.
const octavo_host *host();

// Adds an error to the diagnostics of this thread.
void diagnose(const std::string &text);

// What was diagnosed on this thread since the last call, one message a line.
std::string take_diagnostics();

}  // namespace octavo::ops
