// `octavo lock`: asks every backend that a configuration names, and writes down who answered what.
#pragma once

#include "lock.h"
#include "octavo/octavo.h"

namespace octavo {

// Writes octavo.lock beside the configuration file of `desc`. Entries of other platforms stay.
// Returns what was written for this one. Backends that cannot be loaded are warnings; none that can
// is Failure(OCTAVO_UNSUPPORTED), and no file is written. *path receives the file's name.
std::vector<LockedPlugin> write_lock_for(const octavo_open_desc &desc, const octavo_host *host,
                                         std::string *path);

}  // namespace octavo
