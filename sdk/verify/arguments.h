// The command line of octavo-conformance.
//
// Nothing here opens a backend; a mistake on the command line ends the program with exit code 2.
#ifndef OCTAVO_CONFORMANCE_ARGUMENTS_H
#define OCTAVO_CONFORMANCE_ARGUMENTS_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octavo::conformance {

struct Arguments {
  std::string backend;
  std::vector<std::pair<std::string, std::string>> options;  // {"fp8.te.recipe", "current"}
  std::vector<std::string> plugin_dirs;
  std::vector<std::string> checks;  // empty: all
  uint64_t seed = 1;
  bool list = false;
  bool help = false;
};

extern const char kUsage[];

// Nothing when the command line is wrong; `error` then says what was expected.
std::optional<Arguments> parse(int argc, char **argv, std::string *error);

}  // namespace octavo::conformance

#endif
