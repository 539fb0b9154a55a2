// The host that backends see in torch: diagnostics are kept for the calling thread, and CPU kernels
// run on torch's own threads.
#pragma once

#include <string>
#include <vector>

#include "octavo/host.h"

namespace octavo::core {

// Lives until the process ends. THREAD_ANY.
const octavo_host *host();

struct Said {
  octavo_status code = OCTAVO_OK;
  uint32_t severity = 0;
  std::string domain, text;
};

// Adds an error to the diagnostics of this thread.
void diagnose(const std::string &text);

// What was diagnosed on this thread since the last call. The oldest half is dropped at 1024.
std::vector<Said> take_diagnostics();

}  // namespace octavo::core
