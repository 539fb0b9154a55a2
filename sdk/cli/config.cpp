// octavo config: the effective configuration with the origin of every value.
#include <functional>
#include <memory>

#include "common.h"

namespace octavo::cli {

namespace {

// The options of a command that prints the configuration, and how it does so.
std::function<void()> printer(CLI::App &command, int &exit) {
  auto request = std::make_shared<Request>();
  request->add_config_options(command);
  request->add_locked_option(command);
  request->add_format_options(command);
  return [request, &exit] {
    const octavo_open_desc d = request->desc();
    exit = exit_code(octavo_check_config(&d, request->format(), print_line, nullptr));
  };
}

}  // namespace

void add_config(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("config", "Look at a configuration");
  command->require_subcommand(0, 1);
  auto show = std::make_shared<bool>(false);
  command->add_flag("--show-origin", *show,
                    "print every key with its value and its origin: file:line:column, environment "
                    "variable, override or default");
  const auto print = printer(*command, exit);
  CLI::App *check = command->add_subcommand(
      "check", "Check a file, backend options included, and print every value with its origin");
  check->callback(printer(*check, exit));
  command->callback([check, show, print] {
    if (check->parsed()) return;
    if (!*show) throw CLI::RequiredError("config: --show-origin or a subcommand");
    print();
  });
}

}  // namespace octavo::cli
