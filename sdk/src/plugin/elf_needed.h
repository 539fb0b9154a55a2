// Where a library, or the environment, leads the system's loader for what the library needs.
#pragma once

#include <string>
#include <vector>

namespace octavo {

struct NeededSearch {
  std::string origin;   // directory of the library that needs: $ORIGIN
  std::string rpath;    // DT_RPATH
  std::string runpath;  // DT_RUNPATH; where it is set, DT_RPATH does not count
};

// As ld.so(8) searches before the system's directories: DT_RPATH, LD_LIBRARY_PATH (not in a process
// with raised privileges), DT_RUNPATH, or a name with a slash. Empty: none of these leads to it, or
// the process has opened a library of this name.
std::string find_named(const std::string &name, const NeededSearch &search);

// Whether they lead to it, whatever the process has opened.
bool is_named(const std::string &name, const NeededSearch &search);

// The absolute path under which this process has opened a library of this name; empty: it has none.
std::string opened_by_path(const std::string &name);

}  // namespace octavo
