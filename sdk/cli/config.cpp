// octavo config check: the effective configuration with the origin of every value.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_config(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("config", "Look at a configuration");
  command->require_subcommand(1);
  CLI::App *check = command->add_subcommand(
      "check", "Check a file, backend options included, and print every value with its origin");
  auto request = std::make_shared<Request>();
  request->add_config_options(*check);
  request->add_format_options(*check);
  check->callback([request, &exit] {
    const octavo_open_desc d = request->desc();
    exit = exit_code(octavo_check_config(&d, request->format(), print_line, nullptr));
  });
}

}  // namespace octavo::cli
