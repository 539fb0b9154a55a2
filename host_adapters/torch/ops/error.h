// How a failed call of the contract becomes an error in torch: status, what was called, and what
// the callee said.
#pragma once

#include <string>

#include "octavo/abi.h"

namespace octavo::ops {

// Throws through torch, as a RuntimeError in Python. Its text holds "octavo status N", from which
// the Python package takes the type of its own exception, and the diagnostics of this thread.
[[noreturn]] void raise(octavo_status status, const std::string &what);

// what: the verb, or what was looked at.
inline void check(octavo_status status, const char *what) {
  if (status != OCTAVO_OK) raise(status, what);
}

}  // namespace octavo::ops
