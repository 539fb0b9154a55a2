// octavo plugin: the commands for plugins, and `list`: every plugin that the search path holds; no
// plugin code runs, unless --kernels asks for it.
#include "common.h"

namespace octavo::cli {

void add_plugin(CLI::App &app, int &exit) {
  CLI::App *plugin =
      app.add_subcommand("plugin", "List, trust, try and write plugins: backends and kernels");
  plugin->require_subcommand(1);
  CLI::App *list = plugin->add_subcommand("list", "List the installed plugins, and where they are");
  auto request = std::make_shared<Request>();
  auto kernels = std::make_shared<bool>(false);
  list->add_flag("--kernels", *kernels,
                 "Show the casts and products of each device's kernels instead; runs their code");
  list->callback([print = printer(*list, exit, octavo_list, request), request, kernels, &exit] {
    if (*kernels)
      exit = list_abilities(*request);
    else
      print();
  });
  add_allow(*plugin, exit);
  add_lock(*plugin, exit);
  add_try(*plugin, exit);
  add_new(*plugin, exit);
  add_verify(*plugin, exit);
  add_manifest(*plugin, exit);
  add_check_elf(*plugin, exit);
}

}  // namespace octavo::cli
