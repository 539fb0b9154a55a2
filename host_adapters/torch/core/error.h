// How a failed call of the contract ends: status, what was called, and what the callee said.
#pragma once

#include <string>

#include "octavo/abi.h"

namespace octavo::core {

// Throws the host's kind of error, with the diagnostics of this thread. Each library that the core
// is part of defines it: as what torch throws in ops, as octavo::torch::Error in C++.
[[noreturn]] void raise(octavo_status status, const std::string &what);

// what: the verb, or what was looked at.
inline void check(octavo_status status, const char *what) {
  if (status != OCTAVO_OK) raise(status, what);
}

}  // namespace octavo::core
