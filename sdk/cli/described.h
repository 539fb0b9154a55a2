// The commands of octavo as data, read from the definitions that parse them and print --help.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace octavo::cli {

struct DescribedOption {
  std::vector<std::string> names;  // with dashes; empty: an argument that is known by its place
  std::string place;               // its name where it is an argument
  std::string description;
  bool takes_value = false;
};

struct Described {
  std::string name, path;  // "show", "config show"
  std::string description, footer;
  std::vector<DescribedOption> options;
  std::vector<Described> commands;
};

// `app`: the program. Commands in the order of --help.
Described describe_program(const CLI::App &app);

// Calls use(const Described &) for the program and every command below it.
template <typename Use>
void for_each_command(const Described &from, const Use &use) {
  use(from);
  for (const Described &c : from.commands) for_each_command(c, use);
}

}  // namespace octavo::cli
