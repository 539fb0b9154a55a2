// What --help prints: commands in groups, at the terminal's width, with an example for each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace octavo::cli {

// For the program and every command below it.
void set_help(CLI::App &program);

// "octavo plugin verify"
std::string path_of(const CLI::App &command);
// "plugin verify"; empty for the program.
std::string words_after_octavo(const CLI::App &command);

// With dashes, short ones first; empty: an argument that is known by its place.
std::vector<std::string> names_of(const CLI::Option &option);

// Calls use(const CLI::App &) for the program and every command below it, in the order of --help.
template <typename Use>
void for_each_command(const CLI::App &from, const Use &use) {
  use(from);
  for (const CLI::App *below : from.get_subcommands(nullptr)) for_each_command(*below, use);
}

}  // namespace octavo::cli
