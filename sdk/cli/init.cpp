// octavo init: questions, and an octavo.toml that runs here.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/wizard/wizard.h"
#include "sdk/cli/written.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli {
namespace {

struct Init {
  Request request;
  std::map<std::string, std::string> given;
  std::string output = "octavo.toml";
  bool yes = false, force = false, json = false;
};

// The answers by key; backend and recipe once more, for those who look for nothing else.
void print_init_json(const Init &init, const wizard::Wizard &asked) {
  nlohmann::json settings = nlohmann::json::object(), backend, recipe;
  for (const TomlLine &line : asked.lines()) {
    settings[line.key] = json_of_value(line.value);
    if (line.key == "fp8.backend") backend = settings[line.key];
    if (line.key == "fp8.te.recipe") recipe = settings[line.key];
  }
  put_json(nlohmann::json{
      {"written", init.output}, {"backend", backend}, {"recipe", recipe}, {"settings", settings}});
}

int run_init(const Init &init) {
  try {
    refuse_existing(init.output, init.force);
    wizard::Wizard asked(init.request, init.output, init.given, init.yes);
    asked.ask_all();
    const std::string text = asked.toml();
    write_file(init.output, text, init.force);
    if (init.json) {
      print_init_json(init, asked);
      return kOk;
    }
    say("%s%s\n%s\n%s is written. Next: octavo check %s\n", init.yes ? "" : "\n", text.c_str(),
        asked.short_form().c_str(), init.output.c_str(), init.output.c_str());
  } catch (const Failure &f) {
    return failed(f);
  }
  return kOk;
}

}  // namespace

void add_init(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand("init", "Create an octavo.toml interactively");
  auto init = std::make_shared<Init>();
  command->add_flag("--yes", init->yes, "take the default of what no option answers");
  command->add_flag("--json", init->json, "print JSON (requires --yes)")->needs("--yes");
  std::vector<std::string> added;
  for (const wizard::Question &q : wizard::questions()) {
    if (std::find(added.begin(), added.end(), q.flag) != added.end()) continue;
    added.emplace_back(q.flag);
    command->add_option_function<std::string>(
        q.flag,
        [init, flag = std::string(q.flag)](const std::string &text) { init->given[flag] = text; },
        std::string("the answer to: ") + q.text);
  }
  command->add_option("--output", init->output, "the file to write")
      ->capture_default_str()
      ->check(problem_of_empty);
  command->add_flag("--force", init->force, "replace a file that exists");
  init->request.add_plugin_options(*command);
  command->callback([init, &exit] { exit = run_init(*init); });
}

}  // namespace octavo::cli
