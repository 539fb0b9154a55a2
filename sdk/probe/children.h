// Whether the plugin has started processes, which a library must not do.
#pragma once

#include <string>

namespace octavo::probe {

// Begins to watch fork. From now on this process adopts what its children leave behind.
void watch_children();

// True in a copy of this process, which must not go on as if it were the helper.
bool is_copy();

// What the plugin did, after "the plugin ": empty when it started no process. One that was started
// without fork and has been waited for is not seen.
std::string started_processes();

}  // namespace octavo::probe
