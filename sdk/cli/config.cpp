// octavo config: the effective configuration with the origin of every value, and what may be
// configured.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_config(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("config", "Show or check a configuration");
  command->require_subcommand(0, 1);
  auto show = std::make_shared<bool>(false);
  command->add_flag("--show-origin", *show,
                    "print every key with its value and its origin: file:line:column, environment "
                    "variable, override or default");
  const auto print = printer(*command, exit, octavo_check_config);
  CLI::App *check = command->add_subcommand(
      "check",
      "Check a file with the options of its backends, and print every value with its origin");
  check->callback(printer(*check, exit, octavo_check_config));
  CLI::App *schema = command->add_subcommand(
      "schema",
      "Print the JSON Schema of octavo.toml for editors, with the options of every installed "
      "backend");
  auto request = std::make_shared<Request>();
  request->add_plugin_options(*schema);
  schema->callback([request, &exit] {
    exit = exit_code(request->ask([](const octavo_open_desc &d) {
      return octavo_check_config(&d, OCTAVO_STR("schema"), print_line, nullptr);
    }));
  });
  command->callback([check, schema, show, print] {
    if (check->parsed() || schema->parsed()) return;
    if (!*show) throw CLI::RequiredError("config: --show-origin or a subcommand");
    print();
  });
}

}  // namespace octavo::cli
