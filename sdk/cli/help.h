// What --help prints: commands in groups, at the terminal's width, with an example for each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace octavo::cli {

// For the program and every command below it.
void set_help(CLI::App &program);

// "octavo plugin verify"
std::string path_of(const CLI::App &command);

}  // namespace octavo::cli
