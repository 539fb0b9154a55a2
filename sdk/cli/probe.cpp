// octavo probe: what this machine has.
#include <memory>

#include "common.h"

namespace octavo::cli {

void add_probe(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("probe", "Show processor, memory, driver and devices");
  auto request = std::make_shared<Request>();
  request->add_format_options(*command);
  command->callback([request, &exit] {
    const octavo_open_desc d = request->desc();
    exit = exit_code(octavo_probe(&d, request->format(), print_line, nullptr));
  });
}

}  // namespace octavo::cli
