// Where the system's loader would find a needed library, without asking it.
#pragma once

#include <string>
#include <vector>

namespace octavo {

struct NeededSearch {
  std::string origin;   // directory of the library that needs: $ORIGIN
  std::string rpath;    // DT_RPATH, empty where there is a runpath
  std::string runpath;  // DT_RUNPATH
  std::string cache = "/etc/ld.so.cache";
};

struct NeededFile {
  std::string path;        // empty: nowhere
  bool only_here = false;  // found because this process has opened it, and in no other way
};

// As ld.so(8) searches: what the process has opened, DT_RPATH, LD_LIBRARY_PATH (not in a process
// with raised privileges), DT_RUNPATH, /etc/ld.so.cache, the system's directories.
NeededFile find_needed(const std::string &name, const NeededSearch &search);

// Where DT_RPATH, LD_LIBRARY_PATH or DT_RUNPATH lead to it, or a name with a slash; empty: nowhere,
// or the process has opened a library of this name.
std::string find_named(const std::string &name, const NeededSearch &search);

// The paths that a cache file of ldconfig lists under `name`; nothing from a file that is damaged.
std::vector<std::string> paths_in_cache(const std::string &cache_file, const std::string &name);

}  // namespace octavo
