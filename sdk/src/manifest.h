// Manifest: what `<name>.octavo-plugin.toml` says about a plugin, before any of its code is
// touched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verdict.h"

namespace octavo {

struct Manifest {
  std::string path;
  std::string name;
  std::string version;
  std::string description;
  int64_t abi_major = 0;
  int64_t abi_minor = 0;
  std::string library;                // absolute
  std::string sha256;                 // lower-case hex; empty: not stated
  std::vector<std::string> warnings;  // unknown keys
};

// "linux-x86_64": the key of this platform under [library].
const char *platform_tuple();

// Reads and checks the manifest and that its library file is there. On failure returns nothing and
// appends a declining verdict that says why.
std::optional<Manifest> read_manifest(const std::string &path, std::vector<Verdict> &verdicts);

}  // namespace octavo
