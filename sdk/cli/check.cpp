// octavo check: whether a configuration is right, what it runs here, and why not the rest.
#include "common.h"

namespace octavo::cli {

void add_check(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "check", "Check a configuration: which backend runs here, and why the others do not");
  command->footer(
      "Exit codes: 0 something runs; 1 nothing that the configuration allows runs here; 2 wrong "
      "arguments or configuration; 3 another failure");
  command->callback(printer(*command, exit, octavo_explain));
}

}  // namespace octavo::cli
