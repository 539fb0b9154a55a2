// octavo list: every plugin that the search path holds; no plugin code runs.
#include "common.h"

namespace octavo::cli {

void add_list(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("list", "List the installed plugins, and where they are");
  command->callback(printer(*command, exit, octavo_list));
}

}  // namespace octavo::cli
