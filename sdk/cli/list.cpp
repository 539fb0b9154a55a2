// octavo list: every plugin that the search path holds; no plugin code runs.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_list(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("list", "List the installed backends and where they lie");
  auto request = std::make_shared<Request>();
  request->add_config_options(*command);
  request->add_locked_option(*command);
  request->add_format_options(*command);
  command->callback([request, &exit] {
    const octavo_open_desc d = request->desc();
    exit = exit_code(octavo_list(&d, request->format(), print_line, nullptr));
  });
}

}  // namespace octavo::cli
