// octavo plugin check-elf: runs the script of that name, which reads a library's tables with
// readelf.
#include <filesystem>

#include "common.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

// Next to the program in a build tree, in libexec where it is installed.
std::string script() {
  const fs::path bin = fs::canonical("/proc/self/exe").parent_path();
  for (const char *place : {"octavo-check-elf", "../libexec/octavo/octavo-check-elf",
                            "../lib/octavo/octavo-check-elf"}) {
    if (fs::exists(bin / place)) return (bin / place).lexically_normal().string();
  }
  throw CLI::FileError(
      "expected octavo-check-elf in libexec/octavo of the installation, found none");
}

}  // namespace

void add_check_elf(CLI::App &plugin, int &exit) {
  CLI::App *command = plugin.add_subcommand(
      "check-elf",
      "Check what a plugin's library exports, needs and leaves in a process; --help lists options");
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, &exit] {
    std::vector<std::string> words = command->remaining();
    words.insert(words.begin(), script());
    exit = become_python(words, "octavo plugin check-elf needs python3 and readelf");
  });
}

}  // namespace octavo::cli
