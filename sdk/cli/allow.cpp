// octavo plugin allow: the user's answer to a configuration file that brings plugins along. No
// plugin runs.
#include "sdk/src/file/allowed.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "common.h"
#include "octavo/octavo.hpp"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kManifestEnd = ".octavo-plugin.toml";

struct Choice {
  std::string path = "octavo.toml";
  bool revoke = false, json = false;
};

// A directory, and the plugins that it holds.
struct Answered {
  std::string directory;
  std::set<std::string> plugins;
};

std::set<std::string> plugins_in(const std::string &directory) {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory, error)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kManifestEnd))
      names.insert(file.substr(0, file.size() - kManifestEnd.size()));
  }
  return names;
}

// The directories that a configuration file names and that wait for an answer.
std::set<std::string> waiting(const std::string &file) {
  octavo::Settings settings;
  settings.path(file);
  const auto listed = nlohmann::json::parse(list_json(settings));
  std::set<std::string> directories;
  for (const auto &place : listed["searched"]) {
    if (!place.value("waits", false)) continue;
    const fs::path named = place["directory"].get<std::string>();
    directories.insert((named.string().ends_with(kManifestEnd) ? named.parent_path() : named)
                           .lexically_normal()
                           .string());
  }
  return directories;
}

Answered answer(const std::string &directory, bool revoke) {
  revoke ? disallow(directory) : allow(directory);
  return {directory, plugins_in(directory)};
}

void print_answers(const Choice &choice, const std::vector<Answered> &all, bool of_file) {
  const auto shown = [](const std::string &text) { return take_words(text.c_str()); };
  for (const Answered &one : all) {
    const std::string plugins =
        one.plugins.empty() ? "no plugin yet" : enumerate({one.plugins.begin(), one.plugins.end()});
    if (choice.revoke)
      say("No longer allowed: %s\n", shown(one.directory).c_str());
    else
      say("Allowed: %s (%s)\n", shown(one.directory).c_str(), shown(plugins).c_str());
  }
  if (!of_file) return;
  if (all.empty())
    say("%s: nothing waits for an answer\n", shown(choice.path).c_str());
  else
    say("Take it back with: octavo plugin allow --revoke DIRECTORY\n");
}

void print_answers_json(const Choice &choice, const std::vector<Answered> &all) {
  nlohmann::json directories = nlohmann::json::array();
  for (const Answered &one : all)
    directories.push_back({{"directory", one.directory}, {"plugins", one.plugins}});
  put_json(nlohmann::json{
      {"path", choice.path}, {"allowed", !choice.revoke}, {"directories", directories}});
}

int run(const Choice &choice) {
  std::error_code error;
  const bool is_directory = fs::is_directory(choice.path, error);
  if (choice.revoke && !is_directory && fs::exists(choice.path, error))
    throw Failure(
        OCTAVO_INVALID, "octavo.discovery", choice.path,
        ": expected a folder to take the answer back for, found a file; `octavo plugin list` "
        "with it shows its folders");
  const bool of_file = !is_directory && !choice.revoke;
  std::vector<Answered> all;
  int exit = kOk;
  try {
    for (const std::string &directory :
         of_file ? waiting(choice.path) : std::set<std::string>{choice.path})
      all.push_back(answer(directory, choice.revoke));
  } catch (const Failure &failure) {
    if (all.empty()) throw;
    exit = failed(failure);  // the answers before it are recorded
  }
  if (choice.json)
    print_answers_json(choice, all);
  else
    print_answers(choice, all, of_file);
  return exit;
}

}  // namespace

void add_allow(CLI::App &plugin, int &exit) {
  CLI::App *command = plugin.add_subcommand(
      "allow", "Trust the plugin folders that a configuration file refers to");
  auto choice = std::make_shared<Choice>();
  command
      ->add_option("path", choice->path,
                   "the configuration file, for all folders that it names; or one folder")
      ->capture_default_str()
      ->check(problem_of_empty);
  command->add_flag("--revoke", choice->revoke, "stop trusting a folder");
  command->add_flag("--json", choice->json, "print JSON");
  command->callback([choice, &exit] {
    try {
      exit = run(*choice);
    } catch (const Failure &failure) {
      exit = failed(failure);
    }
  });
}

}  // namespace octavo::cli
