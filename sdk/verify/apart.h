// A check in a process of its own: whatever the plugin does to that process is a failure of the
// check, with the call in which it happened.
#pragma once

#include <functional>
#include <string>

#include "record.h"

namespace octavo::conformance {

// Once, before the first check: processes that a plugin leaves behind become children of this one.
void adopt_orphans();

// Runs `body` in a child process. The result is the child's record, if exactly one came, the child
// then ended with exit code 0 within `timeout` seconds and no process of it is left.
Record run_apart(const std::string &check, double timeout, const std::function<Record()> &body);

}  // namespace octavo::conformance
