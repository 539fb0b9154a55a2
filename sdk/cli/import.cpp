// octavo import: an octavo.toml from the configuration of Accelerate or DeepSpeed.
#include <cstdio>
#include <memory>

#include "common.h"
#include "sdk/cli/imports/import.h"
#include "sdk/cli/written.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli {
namespace {

struct ImportCommand {
  std::vector<std::string> words;  // FILE, or KEY=VALUE with --kwargs
  std::string handler, output = "octavo.toml";
  bool dry_run = false, force = false, without_refused = false, list_keys = false, json = false;
};

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

imports::Import read_import(const ImportCommand &c) {
  using namespace imports;
  if (!c.handler.empty())
    return translate(read_arguments(c.words), c.handler, handler_of(c.handler));
  if (c.words.size() != 1)
    throw Failure(OCTAVO_INVALID, kImportDomain, "expected one FILE, found ", c.words.size(),
                  "; settings of a script go in as octavo import --kwargs TERecipeKwargs margin=0");
  const std::string &file = c.words.front();
  const std::string text = read_source(file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  std::vector<Found> found = is_json ? read_json(text, file) : read_yaml(text, file);
  const unsigned where = kind_of_file(found, file, is_json);
  return translate(std::move(found), file, where);
}

void print_fates(const imports::Import &import) {
  std::vector<std::array<std::string, 3>> rows = {{"key", "value", "what became of it"}};
  for (const imports::Fate &fate : import.fates) {
    std::string became = imports::word_of(fate.outcome);
    if (!fate.setting.empty()) became += ": " + fate.setting;
    if (!fate.words.empty()) became += (fate.setting.empty() ? ": " : "; ") + fate.words;
    rows.push_back({fate.found.key, fate.found.shown(), became});
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

void print_import_json(const ImportCommand &c, const Imported &done) {
  nlohmann::json keys = nlohmann::json::array(), settings = nlohmann::json::object();
  for (const imports::Fate &fate : done.import.fates) {
    const std::string key = fate.setting.substr(0, fate.setting.find(" = "));
    keys.push_back({{"key", fate.found.key},
                    {"value", fate.found.shown()},
                    {"place", imports::place(done.import.file, fate.found)},
                    {"outcome", imports::word_of(fate.outcome)},
                    {"to", key.empty() ? nlohmann::json() : nlohmann::json(key)},
                    {"note", fate.words}});
  }
  for (const imports::Assignment &a : done.import.settings)
    settings[a.key] = json_of_value(a.value);
  put_json(nlohmann::json{{"source", done.import.file},
                          {"keys", keys},
                          {"refused", done.refused},
                          {"settings", settings},
                          {"toml", done.toml},
                          {"written", done.written ? nlohmann::json(c.output) : nlohmann::json()}});
}

// To stderr; the JSON has the same among its keys.
size_t print_refused(const ImportCommand &c, const imports::Import &import) {
  size_t refused = 0;
  for (const imports::Fate &fate : import.fates) {
    if (fate.outcome != imports::Outcome::kRefused) continue;
    ++refused;
    say_error("%s: %s: %s: refused: %s\n", c.without_refused ? "warning" : "error",
              imports::place(import.file, fate.found).c_str(),
              take_words(fate.found.key.c_str()).c_str(), fate.words.c_str());
  }
  return refused;
}

int write_import(const ImportCommand &c, Imported &done) {
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

int run_import(const ImportCommand &c) {
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
      say("\n%s is written. Next: octavo check %s\n", c.output.c_str(), c.output.c_str());
    return exit;
  } catch (const Failure &f) {
    return failed(f);
  }
}

}  // namespace

void add_import(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "import", "Make an octavo.toml from a config.yaml of Accelerate or a JSON file of DeepSpeed");
  auto c = std::make_shared<ImportCommand>();
  command->add_option("source", c->words,
                      "the file; with --kwargs, settings as in margin=0 fp8_format=HYBRID");
  const std::string handlers =
      "TERecipeKwargs, MSAMPRecipeKwargs, AORecipeKwargs or FP8RecipeKwargs";
  command
      ->add_option("--kwargs", c->handler,
                   "the class of Accelerate whose settings follow: " + handlers)
      ->check([handlers](const std::string &name) {
        return imports::handler_of(name) != 0 ? std::string()
                                              : "expected " + handlers + ", found \"" + name + "\"";
      });
  command->add_option("--output", c->output, "the file to write")
      ->capture_default_str()
      ->check(problem_of_empty);
  command->add_flag("--dry-run", c->dry_run, "print the result and what became of each key");
  command->add_flag("--force", c->force, "replace a file that exists");
  command->add_flag("--without-refused", c->without_refused,
                    "write the rest where keys are refused");
  command->add_flag("--list-keys", c->list_keys, "print every known key, as a table in Markdown");
  command->add_flag("--json", c->json, "print JSON")->excludes("--list-keys");
  command->footer(
      "Exit codes: 0 done; 1 a key was refused; 2 wrong arguments or a file that cannot be read");
  command->callback([c, &exit] {
    if (c->list_keys) return list_import_keys();
    exit = run_import(*c);
  });
}

}  // namespace octavo::cli
