// What `octavo new` can begin: a sample, and the project files that go around it.
#ifndef OCTAVO_CLI_NEW_LANGUAGES_H
#define OCTAVO_CLI_NEW_LANGUAGES_H

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace octavo::cli {

// Placeholders in `words` and in project files: @NAME@, the name, and @CLASS@, the name as a class.
struct Language {
  const char *id;       // of --lang
  const char *what;     // for a reader
  const char *sample;   // its folder in share/octavo/samples
  const char *project;  // the folder of project files in share/octavo/new
  // Whole words of the sample, in its files and in their names, and what replaces them.
  std::vector<std::pair<std::string, std::string>> words;
  // Placeholders of the project files: @LANGUAGE@ and so on.
  std::vector<std::pair<std::string, std::string>> values;
};

inline const std::vector<Language> &languages() {
  static const std::vector<Language> all = {
      {"cpp",
       "a backend in C++",
       "current_plugin",
       "plugin",
       {{"current.cpp", "@NAME@.cpp"}, {"Current", "@CLASS@"}},
       {{"IN", "C++"}, {"LANGUAGE", "CXX"}, {"STANDARD", "cxx_std_17"}}},
      {"c",
       "a backend in C",
       "minimal_plugin",
       "plugin",
       {{"minimal", "@NAME@"}},
       {{"IN", "C"}, {"LANGUAGE", "C"}, {"STANDARD", "c_std_11"}}},
      {"host-cpp",
       "a program in C++ that trains",
       "mlp_host",
       "host",
       {{"mlp_host", "@NAME@"}},
       {{"IN", "C++"},
        {"LANGUAGE", "CXX"},
        {"STANDARD", "cxx_std_17"},
        {"OPTION", ""},
        {"STEPS", "300"}}},
      {"host-c",
       "a program in C that trains, with ranks and checkpoints",
       "c_host",
       "host",
       {{"train", "@NAME@"}},
       {{"IN", "C"},
        {"LANGUAGE", "C"},
        {"STANDARD", "c_std_11"},
        {"OPTION", "--config "},
        {"STEPS", "200"}}},
  };
  return all;
}

}  // namespace octavo::cli

#endif
