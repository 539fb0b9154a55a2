// octavo config: the effective configuration with the origin of every value, and what may be
// configured.
#include <map>
#include <memory>

#include "common.h"
#include "sdk/cli/imports/import.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

// Lines of a report whose "override" is a variable of accelerate launch.
struct LaunchedLines {
  std::map<std::string, std::string> origins;  // by key
  std::string key;                             // of the JSON object that is open

  static void line(void *ctx, octavo_str text) {
    auto &self = *static_cast<LaunchedLines *>(ctx);
    std::string shown(text.data, text.size);
    const size_t begin = shown.find_first_not_of(' ');
    if (begin != std::string::npos && shown[begin] == '"' && shown.ends_with("\": {"))
      self.key = shown.substr(begin + 1, shown.size() - begin - 5);
    const size_t end = shown.find_first_of(" =");
    const auto found = self.origins.find(begin == 0 ? shown.substr(0, end) : self.key);
    for (const char *word : {"(override)", "\"origin\": \"override\""}) {
      const size_t at = shown.rfind(word);
      if (found == self.origins.end() || at == std::string::npos) continue;
      shown.replace(shown.find("override", at), 8, found->second);
      break;
    }
    print_line(shown.c_str());
  }
};

int show_launched(Request &request) {
  try {
    LaunchedLines lines;
    const imports::Import launched = imports::read_launcher(lines.origins);
    for (const std::string &one : request.assignments())
      lines.origins.erase(one.substr(0, one.find('=')));  // the command line wins
    for (const imports::Assignment &a : launched.settings)
      request.set_default(a.key + "=" + show(a.value));
    return exit_code(request.ask([&](const octavo_open_desc &d) {
      return octavo_check_config(&d, request.format(), LaunchedLines::line, &lines);
    }));
  } catch (const Failure &f) {
    return failed(f);
  }
}

}  // namespace

void add_config(CLI::App &app, int &exit) {
  CLI::App *command =
      app.add_subcommand("config", "Show every key of a configuration, or a schema");
  command->require_subcommand(1);
  CLI::App *shown = command->add_subcommand(
      "show",
      "Check a file without running any plugin, and print every key with its value and its origin: "
      "file:line:column, environment variable, override or default");
  auto launched = std::make_shared<bool>(false);
  auto request = std::make_shared<Request>();
  const auto print = printer(*shown, exit, octavo_check_config, request);
  shown
      ->add_flag(
          "--launcher", *launched,
          "show what octavo.accelerate makes of the variables that accelerate launch exports")
      ->excludes("--config");
  shown->callback([launched, request, print, &exit] {
    if (*launched)
      exit = show_launched(*request);
    else
      print();
  });
  CLI::App *schema = command->add_subcommand(
      "schema",
      "Print the JSON Schema of octavo.toml for editors, with the options of every installed "
      "backend");
  auto of_schema = std::make_shared<Request>();
  of_schema->add_plugin_options(*schema);
  schema->callback([of_schema, &exit] {
    exit = exit_code(of_schema->ask([](const octavo_open_desc &d) {
      return octavo_check_config(&d, OCTAVO_STR("schema"), print_report_line, nullptr);
    }));
  });
}

}  // namespace octavo::cli
