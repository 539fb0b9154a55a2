// Parsing of the command line: `--name value` and `--name=value`.
//
// Values of --option stay text here; the program finds out their type from the backend's options.
#include "arguments.h"

#include <charconv>

#include "conformance.h"
#include "report.h"

namespace octavo::conformance {

const char kUsage[] =
    "octavo-conformance --backend ID [--option KEY=VALUE]... [--plugin-dir DIR]...\n"
    "                   [--check NAME]... [--seed N] [--list] [--help]\n"
    "\n"
    "Opens the backend and checks that it keeps the contract: on the CPU, or with --option\n"
    "device.kind=cuda on kernels for a device that reads the memory of this program.\n"
    "  --backend ID       the plugin's id, for example te\n"
    "  --option KEY=VALUE a configuration key, for example fp8.te.recipe=current\n"
    "  --plugin-dir DIR   a directory with plugins, searched in addition to the usual ones\n"
    "  --check NAME       run only this check; may be given several times\n"
    "  --seed N           other data and another call order (default 1)\n"
    "  --list             print every check with its meaning and its section of the contract\n"
    "\n"
    "Prints one line per check: pass, FAIL with what was expected and found, or skip with a "
    "reason.\n"
    "Exit code: 0 every check passed; 1 a check failed; 2 wrong usage or the backend could not be\n"
    "opened; 3 nothing failed, but checks were skipped.\n";

std::optional<Arguments> parse(int argc, char **argv, std::string *error) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--list" || name == "--help") {
      (name == "--list" ? arguments.list : arguments.help) = true;
      continue;
    }
    std::string value;
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      *error = text("'", name, "' is unknown or lacks its value");
      return std::nullopt;
    }
    if (name == "--backend") {
      arguments.backend = value;
    } else if (name == "--plugin-dir") {
      arguments.plugin_dirs.push_back(value);
    } else if (name == "--check") {
      if (find_check(value) == nullptr) {
        *error = text("there is no check '", value, "'; --list shows all");
        return std::nullopt;
      }
      arguments.checks.push_back(value);
    } else if (name == "--option") {
      const size_t split = value.find('=');
      if (split == std::string::npos || split == 0) {
        *error = text("--option expects KEY=VALUE, found '", value, "'");
        return std::nullopt;
      }
      arguments.options.emplace_back(value.substr(0, split), value.substr(split + 1));
    } else if (name == "--seed") {
      const char *end = value.data() + value.size();
      const auto parsed = std::from_chars(value.data(), end, arguments.seed);
      if (parsed.ec != std::errc() || parsed.ptr != end) {
        *error = text("--seed expects a number, found '", value, "'");
        return std::nullopt;
      }
    } else {
      *error = text("unknown argument '", name, "'");
      return std::nullopt;
    }
  }
  if (arguments.backend.empty() && !arguments.list && !arguments.help) {
    *error = "--backend is missing";
    return std::nullopt;
  }
  return arguments;
}

}  // namespace octavo::conformance
