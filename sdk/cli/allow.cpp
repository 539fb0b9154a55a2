// octavo allow: the user's answer to a configuration file that brings plugins along. No plugin
// runs.
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
  bool revoke = false;
};

// "acme, other"; the plugins that a directory holds.
std::string plugins_in(const std::string &directory) {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory, error)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kManifestEnd))
      names.insert(file.substr(0, file.size() - kManifestEnd.size()));
  }
  return names.empty() ? "no plugin yet" : enumerate({names.begin(), names.end()});
}

// The directories that a configuration file names and that wait for an answer.
std::set<std::string> waiting(const std::string &file) {
  octavo::Settings settings;
  settings.path(file);
  const octavo::Answer answer = octavo::list(settings, "json");
  const auto listed = nlohmann::json::parse(answer.text, nullptr, false);
  if (answer.status != OCTAVO_OK || !listed.is_object())
    throw Failure(
        answer.status, "octavo.config",
        answer.diagnostics.empty() ? file + ": cannot be read" : answer.diagnostics.back().text);
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

void answer(const std::string &directory, bool revoke) {
  revoke ? disallow(directory) : allow(directory);
  const std::string shown = take_words(directory.c_str());
  if (revoke)
    std::printf("No longer allowed: %s\n", shown.c_str());
  else
    std::printf("Allowed: %s (%s)\n", shown.c_str(),
                take_words(plugins_in(directory).c_str()).c_str());
}

int run(const Choice &choice) {
  std::error_code error;
  const bool is_directory = fs::is_directory(choice.path, error);
  if (choice.revoke && !is_directory && fs::exists(choice.path, error))
    throw Failure(OCTAVO_INVALID, "octavo.discovery", choice.path,
                  ": expected a folder to take the answer back for, found a file; `octavo list` "
                  "with it shows its folders");
  if (is_directory || choice.revoke) {
    answer(choice.path, choice.revoke);
    return kOk;
  }
  const std::set<std::string> directories = waiting(choice.path);
  for (const std::string &directory : directories) answer(directory, false);
  if (directories.empty())
    std::printf("%s: nothing waits for an answer\n", take_words(choice.path.c_str()).c_str());
  else
    std::printf("Take it back with: octavo allow --revoke DIRECTORY\n");
  return kOk;
}

}  // namespace

void add_allow(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "allow", "Allow the plugins that a configuration file brings along in folders next to it");
  auto choice = std::make_shared<Choice>();
  command
      ->add_option("path", choice->path,
                   "the configuration file, for all folders that it names; or one folder")
      ->capture_default_str()
      ->check(problem_of_empty);
  command->add_flag("--revoke", choice->revoke, "take the answer for a folder back");
  command->callback([choice, &exit] {
    try {
      exit = run(*choice);
    } catch (const Failure &failure) {
      exit = failed(failure);
    }
  });
}

}  // namespace octavo::cli
