// octavo version: the versions of the library at run time and of the ABI.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"

namespace octavo::cli {
namespace {

struct Versions {
  std::string octavo{view(octavo_version())};
  std::string abi = std::to_string(OCTAVO_ABI_MAJOR) + "." + std::to_string(OCTAVO_ABI_MINOR);
  std::string headers = OCTAVO_ABI_HEADERS;
};

}  // namespace

std::string versions() {
  const Versions v;
  return "octavo " + v.octavo + ", ABI " + v.abi + ", headers " + v.headers;
}

void add_version(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("version", "Print the versions of the SDK and its ABI");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([json, &exit] {
    const Versions v;
    if (*json)
      put_json(nlohmann::json{{"octavo", v.octavo}, {"abi", v.abi}, {"headers", v.headers}});
    else
      print_line(versions().c_str());
    exit = kOk;
  });
}

}  // namespace octavo::cli
