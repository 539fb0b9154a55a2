// octavo plugin new: a project of one's own, begun from a sample.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"
#include "sdk/cli/new/project.h"

namespace octavo::cli {
namespace {

struct New {
  std::string name, language, folder;
  bool json = false;
};

struct Begun {
  std::string folder;
  const Language *language;
  std::vector<std::string> files, commands;
};

// The rules of a plugin's id; and a name that can be that of a file, of a folder and of a project.
std::string problem_of_project(const std::string &name) {
  const std::string problem = problem_of_name(name);
  if (!problem.empty()) return problem;
  const char first = name.front();
  const bool begins = (first >= 'a' && first <= 'z') || (first >= '0' && first <= '9');
  return begins ? "" : "expected a letter or a digit first, found \"" + name + "\"";
}

std::string known_languages() {
  std::string all;
  for (const Language &l : languages()) all += (all.empty() ? "" : ", ") + std::string(l.id);
  return all;
}

const Language *find_language(const std::string &id) {
  for (const Language &l : languages())
    if (l.id == id) return &l;
  return nullptr;
}

Begun write_new(const New &n) {
  Begun begun;
  begun.language = find_language(n.language);
  namespace fs = std::filesystem;
  const fs::path prefix = fs::canonical("/proc/self/exe").parent_path().parent_path();
  fs::path folder = fs::path(n.folder.empty() ? n.name : n.folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const auto files =
      project_files(*begun.language, n.name, prefix / "share/octavo", prefix.string());
  write_project(folder, files);
  begun.folder = folder.string();
  for (const auto &[file, content] : files) begun.files.push_back(file);
  begun.commands = commands(*begun.language, prefix);
  return begun;
}

void print_begun(const Begun &begun) {
  say("%s: %s. Its README explains these:\n\n  cd %s\n", begun.folder.c_str(), begun.language->what,
      begun.folder.c_str());
  for (const std::string &command : begun.commands) say("  %s\n", command.c_str());
}

int begin(const New &n) {
  try {
    const Begun begun = write_new(n);
    if (n.json)
      put_json(nlohmann::json{{"name", n.name},
                              {"language", n.language},
                              {"folder", begun.folder},
                              {"files", begun.files},
                              {"commands", begun.commands}});
    else
      print_begun(begun);
  } catch (const WrongProject &problem) {
    throw CLI::ValidationError("new", problem.what());
  } catch (const std::exception &failure) {
    say_error("error: %s\n", failure.what());
    return kInternal;
  }
  return kOk;
}

}  // namespace

void add_new(CLI::App &plugin, int &exit) {
  CLI::App *command =
      plugin.add_subcommand("new", "Create a backend, kernels or host project from a template");
  auto n = std::make_shared<New>();
  std::string help = "what to create:";
  for (const Language &l : languages()) help += std::string(" ") + l.id + ": " + l.what + ";";
  help.pop_back();
  command->add_option("name", n->name, "the id of the plugin, or the name of the program")
      ->required()
      ->check(CLI::Validator(problem_of_project, "ID"));
  command->add_option("--lang", n->language, help)
      ->required()
      ->check(CLI::Validator(
          [](const std::string &id) {
            return find_language(id) != nullptr
                       ? std::string()
                       : "expected one of " + known_languages() + ", found \"" + id + "\"";
          },
          "LANGUAGE"));
  command->add_option("--dir", n->folder, "the folder to make; NAME without it");
  command->add_flag("--json", n->json, "print JSON");
  command->callback([n, &exit] { exit = begin(*n); });
}

}  // namespace octavo::cli
