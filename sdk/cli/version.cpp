// octavo version: the versions of the library at run time and of the ABI.
#include <cstdio>

#include "common.h"

namespace octavo::cli {

std::string versions() {
  return "octavo " + std::string(view(octavo_version())) + ", ABI " +
         std::to_string(OCTAVO_ABI_MAJOR) + "." + std::to_string(OCTAVO_ABI_MINOR) + ", headers " +
         OCTAVO_ABI_HEADERS;
}

void add_version(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("version", "Print the versions of the SDK and its ABI");
  command->callback([&exit] {
    std::puts(versions().c_str());
    exit = kOk;
  });
}

}  // namespace octavo::cli
