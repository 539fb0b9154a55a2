// octavo probe: what this machine has, and the result of trying each plugin.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_probe(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "probe",
      "Show processor, memory, driver and devices, and try every plugin in a process of "
      "its own");
  auto request = std::make_shared<Request>();
  auto retry = std::make_shared<bool>(false);
  request->add_config_options(*command);
  request->add_format_options(*command);
  command->add_flag("--retry", *retry, "forget earlier results, and try refused plugins again");
  command->callback([request, retry, &exit] {
    if (*retry) request->set("plugins.probe=always");
    exit = exit_code(request->ask([&](const octavo_open_desc &d) {
      return octavo_probe(&d, request->format(), print_report_line, nullptr);
    }));
  });
}

}  // namespace octavo::cli
