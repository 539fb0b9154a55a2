// How a failed call of the contract becomes an error in torch: status, what was called, and what
// the callee said.
#pragma once

#include <string>

#include "octavo/abi.h"

namespace octavo::ops {

// "WRONG_STATE", ... for people; unknown values are "status 17".
std::string status_name(octavo_status status);

// Throws through torch, as a RuntimeError in Python. Its text holds "octavo status N", from which
// the Python package takes the type of its own exception, and the diagnostics of this thread.
[[noreturn]] void raise(octavo_status status, const std::string &what);

inline void check(octavo_status status, const char *verb, const char *object, int64_t id) {
  if (status == OCTAVO_OK) return;
  raise(status, std::string(verb) + " of " + object + " " + std::to_string(id));
}

}  // namespace octavo::ops
