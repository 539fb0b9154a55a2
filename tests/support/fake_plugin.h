// Puts the zoo's fake plugin, with its manifest, into a directory of a test.
//
// OCTAVO_ZOO_DIR is the build folder of tests/zoo; the target must depend on octavo_zoo.
#pragma once

#include <string>

#include "tests/support/temp_dir.h"

namespace octavo::test {

#if defined(__x86_64__)
constexpr const char *kTuple = "linux-x86_64";
#else
constexpr const char *kTuple = "linux-aarch64";
#endif

// By +=, since gcc 12 warns of its own operator+ where all of this is inlined (GCC bug 105651).
inline std::string fake_library(const std::string &fault) {
  std::string path = OCTAVO_ZOO_DIR "/fake_";
  path += fault;
  path += ".so";
  return path;
}

inline std::string fake_manifest() {
  std::string text =
      "manifest_version = 1\n[plugin]\nname = \"fake\"\nversion = \"1.2.3\"\n"
      "description = \"computes nothing\"\n[abi]\nmajor = 1\nminor = 0\n[library]\n";
  text += kTuple;
  text += " = \"fake.so\"\n";
  return text;
}

// [options] of its manifest, as `octavo plugin manifest fake --options` prints them.
inline std::string fake_options() {
  return R"(
[options.count]
default = 4
low = 1
help = "an option"

[options.ratio]
default = 0.5
low = 0.0
high = 1.0
help = "an option"

[options.verbose]
default = false
help = "an option"

[options.mode]
default = "exact"
choices = ["fast", "exact"]
help = "an option"

[options.note]
default = ""
help = "an option"
)";
}

// The library fake_<fault>.so as <directory>/fake.so, with a manifest that fits. That of the good
// one states its options.
inline void put_fake(const TempDir &dir, const std::string &directory,
                     const std::string &fault = "good") {
  dir.copy(fake_library(fault), directory + "/fake.so");
  dir.write(directory + "/fake.octavo-plugin.toml",
            fake_manifest() + (fault == "good" ? fake_options() : ""));
}

}  // namespace octavo::test
