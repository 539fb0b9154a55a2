// octavo init: an octavo.toml that runs here, by questions, or from the configuration of Accelerate
// or DeepSpeed.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/imports/import.h"
#include "sdk/cli/toml_writer.h"
#include "sdk/cli/wizard/wizard.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli {
namespace {

struct Init {
  Request request;
  std::map<std::string, std::string> given;
  std::vector<std::string> kwargs;  // a class, then KEY=VALUE
  std::string from, output = "octavo.toml";
  bool yes = false, force = false, json = false;
  bool dry_run = false, without_refused = false, list_keys = false;
};

// backend and recipe once more, for those who look for nothing else. written: empty: no file.
nlohmann::json json_of_file(const nlohmann::json &settings, const std::string &written) {
  const auto value = [&](const char *key) {
    return settings.contains(key) ? settings[key] : nlohmann::json();
  };
  return {{"written", written.empty() ? nlohmann::json() : nlohmann::json(written)},
          {"backend", value("fp8.backend")},
          {"recipe", value("fp8.te.recipe")},
          {"settings", settings}};
}

void print_next(const Init &init) {
  say("\n%s is written. Next: octavo check %s\n", init.output.c_str(), init.output.c_str());
}

int run_init(const Init &init) {
  try {
    refuse_existing(init.output, init.force);
    wizard::Wizard asked(init.request, init.output, init.given, init.yes);
    asked.ask_all();
    const std::string text = asked.toml();
    write_file(init.output, text, init.force);
    if (init.json) {
      nlohmann::json settings = nlohmann::json::object();
      for (const TomlLine &line : asked.lines()) settings[line.key] = json_of_value(line.value);
      put_json(json_of_file(settings, init.output));
      return kOk;
    }
    say("%s%s\n%s", init.yes ? "" : "\n", text.c_str(), asked.short_form().c_str());
    print_next(init);
  } catch (const Failure &f) {
    return failed(f);
  }
  return kOk;
}

// What was read, the file that it makes, and whether that is there now.
struct Imported {
  imports::Import import;
  std::string toml;
  size_t refused = 0;
  bool written = false;
};

// Keys that differ only in their names share a row.
void list_import_keys() {
  print_line("| Key | Where | Becomes | Note |\n|---|---|---|---|");
  std::string keys, rest;
  const auto print_row = [&] {
    if (!keys.empty()) print_line("| " + keys + rest);
    keys.clear();
  };
  for (const auto *rows : {&imports::recipe_keys(), &imports::host_keys()})
    for (const imports::KeyRow &row : *rows) {
      const std::string becomes =
          row.becomes[0] == '\0' ? "" : "`" + std::string(row.becomes) + "`";
      const std::string more =
          " | " + imports::words_of(row.where) + " | " + becomes + " | " + row.note + " |";
      if (more != rest) print_row();
      rest = more;
      keys += (keys.empty() ? "`" : ", `") + std::string(row.key) + "`";
    }
  print_row();
}

imports::Import read_import(const Init &c) {
  using namespace imports;
  if (!c.kwargs.empty()) {
    const std::string &handler = c.kwargs.front();
    return translate(read_arguments({c.kwargs.begin() + 1, c.kwargs.end()}), handler,
                     handler_of(handler));
  }
  const std::string &file = c.from;
  const std::string text = read_source(file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  std::vector<Found> found = is_json ? read_json(text, file) : read_yaml(text, file);
  const unsigned where = kind_of_file(found, file, is_json);
  return translate(std::move(found), file, where);
}

void print_fates(const imports::Import &import) {
  std::vector<std::array<std::string, 3>> rows = {{"key", "value", "what became of it"}};
  for (const imports::KeyResult &result : import.results) {
    std::string became = imports::word_of(result.outcome);
    if (!result.setting.empty()) became += ": " + result.setting;
    if (!result.words.empty()) became += (result.setting.empty() ? ": " : "; ") + result.words;
    rows.push_back({result.found.key, result.found.shown(), became});
  }
  std::array<size_t, 2> widths = {0, 0};
  for (auto &row : rows)
    for (size_t i = 0; i < 2; ++i) {
      row[i] = take_words(row[i].c_str());
      widths[i] = std::max(widths[i], row[i].size());
    }
  for (const auto &row : rows)
    say("%-*s  %-*s  %s\n", static_cast<int>(widths[0]), row[0].c_str(),
        static_cast<int>(widths[1]), row[1].c_str(), take_words(row[2].c_str()).c_str());
}

void print_import_json(const Init &c, const Imported &done) {
  nlohmann::json keys = nlohmann::json::array();
  for (const imports::KeyResult &result : done.import.results) {
    const std::string key = result.setting.substr(0, result.setting.find(" = "));
    keys.push_back({{"key", result.found.key},
                    {"value", result.found.shown()},
                    {"place", imports::place(done.import.file, result.found)},
                    {"outcome", imports::word_of(result.outcome)},
                    {"to", key.empty() ? nlohmann::json() : nlohmann::json(key)},
                    {"note", result.words}});
  }
  nlohmann::json settings = nlohmann::json::object();
  for (const imports::Assignment &a : done.import.settings)
    settings[a.key] = json_of_value(a.value);
  nlohmann::json j = json_of_file(settings, done.written ? c.output : "");
  j["source"] = done.import.file;
  j["keys"] = keys;
  j["refused"] = done.refused;
  j["toml"] = done.toml;
  put_json(j);
}

// To stderr; the JSON has the same among its keys.
size_t print_refused(const Init &c, const imports::Import &import) {
  size_t refused = 0;
  for (const imports::KeyResult &result : import.results) {
    if (result.outcome != imports::Outcome::kRejected) continue;
    ++refused;
    say_error("%s: %s: %s: refused: %s\n", c.without_refused ? "warning" : "error",
              imports::place(import.file, result.found).c_str(),
              take_words(result.found.key.c_str()).c_str(), result.words.c_str());
  }
  return refused;
}

int write_import(const Init &c, Imported &done) {
  if (done.refused != 0 && !c.without_refused) {
    say_error("error: nothing was written: %s; --without-refused writes the rest\n",
              done.refused == 1 ? "a key was refused" : "keys were refused");
    return kRefused;
  }
  const std::string precision = done.import.precision();
  if (precision != "fp8")
    say_error(
        "warning: mixed_precision is %s, so nothing runs in FP8; octavo check %s "
        "--set mixed_precision=fp8 shows what would\n",
        precision.c_str(), c.output.c_str());
  if (c.dry_run) return kOk;
  write_file(c.output, done.toml, c.force);
  done.written = true;
  return kOk;
}

int run_import(const Init &c) {
  try {
    if (!c.dry_run) refuse_existing(c.output, c.force);
    Imported done{read_import(c), ""};
    done.toml = imports::checked_toml(done.import, c.output);
    done.refused = print_refused(c, done.import);
    if (!c.json) {
      if (c.dry_run) say("%s\n", done.toml.c_str());
      print_fates(done.import);
    }
    const int exit = write_import(c, done);
    if (c.json)
      print_import_json(c, done);
    else if (done.written)
      print_next(c);
    return exit;
  } catch (const Failure &f) {
    return failed(f);
  }
}

}  // namespace

void add_init(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "init",
      "Create an octavo.toml: by questions, or from an Accelerate or DeepSpeed configuration");
  auto init = std::make_shared<Init>();
  command->add_flag("--yes", init->yes, "take the defaults where no option answers");
  command->add_flag("--json", init->json, "print JSON (without --from, requires --yes)");
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
  command
      ->add_option("--from", init->from,
                   "an Accelerate config.yaml or a DeepSpeed JSON file, instead of questions")
      ->check(problem_of_empty);
  const std::string handlers =
      "TERecipeKwargs, MSAMPRecipeKwargs, AORecipeKwargs or FP8RecipeKwargs";
  command
      ->add_option(
          "--kwargs", init->kwargs,
          "an Accelerate class and its settings, as in TERecipeKwargs margin=0: " + handlers)
      ->excludes("--from")
      ->expected(1, 1000);
  command->add_flag("--dry-run", init->dry_run,
                    "of --from and --kwargs: print the result and what became of each key");
  command->add_flag("--without-refused", init->without_refused,
                    "of --from and --kwargs: write the rest where keys are refused");
  command
      ->add_flag("--list-keys", init->list_keys,
                 "print every key that --from and --kwargs know, as a table in Markdown")
      ->excludes("--json");
  command->footer(
      "Exit codes: 0 done; 1 a key or an answer was refused; 2 wrong arguments or a file that "
      "cannot be read");
  command->callback([init, handlers, &exit] {
    if (init->list_keys) return list_import_keys();
    const bool has_source = !init->from.empty() || !init->kwargs.empty();
    if (!init->kwargs.empty() && imports::handler_of(init->kwargs.front()) == 0)
      throw CLI::ValidationError(
          "--kwargs", "expected " + handlers + ", found \"" + init->kwargs.front() + "\"");
    if (has_source && !init->given.empty())
      throw CLI::ValidationError(init->given.begin()->first,
                                 "answers a question, and --from and --kwargs ask none; change "
                                 "the file that they make");
    if (!has_source && (init->dry_run || init->without_refused))
      throw CLI::RequiredError("--dry-run, --without-refused: --from or --kwargs");
    if (!has_source && init->json && !init->yes) throw CLI::RequiredError("--json: --yes");
    exit = has_source ? run_import(*init) : run_init(*init);
  });
}

}  // namespace octavo::cli
