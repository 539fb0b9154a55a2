// octavo explain: what would run with this configuration, and why.
#include "common.h"

namespace octavo::cli {

void add_explain(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "explain", "Show which backend would run here, and why the others would not");
  command->callback(printer(*command, exit, octavo_explain));
}

}  // namespace octavo::cli
