// octavo explain: what would run with this configuration, and why.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_explain(CLI::App &app, int &exit) {
  CLI::App *command =
      app.add_subcommand("explain", "Say which backend would run here, and why others would not");
  auto request = std::make_shared<Request>();
  request->add_config_options(*command);
  request->add_locked_option(*command);
  request->add_format_options(*command);
  command->callback([request, &exit] {
    const octavo_open_desc d = request->desc();
    exit = exit_code(octavo_explain(&d, request->format(), print_line, nullptr));
  });
}

}  // namespace octavo::cli
