// CLI11 knows every option; nothing is listed here.
#include "sdk/cli/described.h"

#include <CLI/CLI.hpp>

namespace octavo::cli {
namespace {

Described described(const CLI::App &app, const std::string &path) {
  Described d;
  d.name = app.get_name();
  d.path = path;
  d.description = app.get_description();
  d.footer = app.get_footer();
  for (const CLI::Option *option : app.get_options()) {
    DescribedOption o;
    for (const std::string &name : option->get_snames()) o.names.push_back("-" + name);
    for (const std::string &name : option->get_lnames()) o.names.push_back("--" + name);
    if (option->get_positional()) o.place = option->get_name(true, false);
    o.description = option->get_description();
    o.takes_value = option->get_items_expected_max() > 0;
    d.options.push_back(o);
  }
  for (const CLI::App *below : app.get_subcommands(nullptr))
    d.commands.push_back(
        described(*below, path.empty() ? below->get_name() : path + " " + below->get_name()));
  return d;
}

}  // namespace

Described describe_program(const CLI::App &app) {
  return described(app, "");
}

}  // namespace octavo::cli
