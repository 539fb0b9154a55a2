// octavo version: the versions of the library at run time and of the ABI.
#include <cstdio>

#include "common.h"

namespace octavo::cli {

void add_version(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("version", "Print the versions of the SDK and its ABI");
  command->callback([&exit] {
    const octavo_str v = octavo_version();
    std::printf("octavo %.*s, ABI %d.%d, headers %s\n", static_cast<int>(v.size), v.data,
                OCTAVO_ABI_MAJOR, OCTAVO_ABI_MINOR, OCTAVO_ABI_HEADERS);
    exit = kOk;
  });
}

}  // namespace octavo::cli
