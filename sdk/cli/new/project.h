// A project folder, made of a sample and of project files, whole or not at all.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "languages.h"

namespace octavo::cli {

// What the user can change: the arguments.
struct WrongProject : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The name as that of a class: "my-recipe.v2" becomes MyRecipeV2.
std::string class_of(const std::string &name);

// The commands that build and test a project with the Octavo in `prefix`.
std::vector<std::string> commands(const Language &language, const std::string &prefix);

// The files of the project, relative path -> content. `data` is share/octavo of the installation.
std::map<std::string, std::string> project_files(const Language &language, const std::string &name,
                                                 const std::filesystem::path &data,
                                                 const std::string &prefix);

// Makes `folder` with these files. It must not exist, not even as an empty folder; what fails
// leaves nothing behind.
void write_project(const std::filesystem::path &folder,
                   const std::map<std::string, std::string> &files);

}  // namespace octavo::cli
