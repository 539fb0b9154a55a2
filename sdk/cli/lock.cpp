// octavo lock: writes octavo.lock next to the configuration file.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_lock(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("lock",
                                         "Write octavo.lock: version, hashes and answers of every "
                                         "backend that the configuration names");
  auto request = std::make_shared<Request>();
  request->add_config_options(*command);
  command->callback([request, &exit] {
    exit = exit_code(request->ask(
        [](const octavo_open_desc &d) { return octavo_lock(&d, print_line, nullptr); }));
  });
}

}  // namespace octavo::cli
