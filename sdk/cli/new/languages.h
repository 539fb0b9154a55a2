// What `octavo plugin new` can begin: a sample, and the project files that go around it.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace octavo::cli {

// What a project is built and tested with.
struct Build {
  // In the folder of the project; @PREFIX@ is an installation of Octavo.
  std::vector<std::string> commands;
  const char *packages;  // of Debian, on top of what Octavo itself is built with
  const char *ignored;   // by git: what the commands make
  bool is_cargo;         // which accepts fewer names
};

// Placeholders in `words` and in project files: @NAME@, the name, and @CLASS@, the name as a class.
struct Language {
  const char *id;       // of --lang
  const char *what;     // for a reader
  const char *sample;   // its folder in share/octavo/samples
  const char *project;  // the folder of project files in share/octavo/new
  const Build *build;
  // Whole words of the sample, in its files and in their names, and what replaces them.
  std::vector<std::pair<std::string, std::string>> words;
  // Placeholders of the project files: @LANGUAGE@ and so on.
  std::vector<std::pair<std::string, std::string>> values;
};

inline const Build &cmake_build() {
  static const Build build = {{"cmake -B build -DCMAKE_PREFIX_PATH=@PREFIX@", "cmake --build build",
                               "ctest --test-dir build --output-on-failure"},
                              "",
                              "/build/",
                              false};
  return build;
}

// Cargo.toml cannot ask where Octavo is: a link says it.
inline const Build &cargo_build() {
  static const Build build = {{"ln -sfn @PREFIX@ octavo", "cargo build --release --offline",
                               "cargo test --release --offline"},
                              " bindgen cargo clang rustc",
                              "/octavo\n/target/",
                              true};
  return build;
}

inline const std::vector<Language> &languages() {
  static const std::vector<Language> all = {
      {"cpp",
       "a backend in C++",
       "current_plugin",
       "plugin",
       &cmake_build(),
       {{"current.cpp", "@NAME@.cpp"},
        {"current.options.toml", "@NAME@.options.toml"},
        {"manifest current", "manifest @NAME@"},
        {"Current", "@CLASS@"}},
       {{"IN", "C++"}, {"LANGUAGE", "CXX"}, {"STANDARD", "cxx_std_17"}}},
      {"c",
       "a backend in C",
       "minimal_plugin",
       "plugin",
       &cmake_build(),
       {{"minimal", "@NAME@"}},
       {{"IN", "C"}, {"LANGUAGE", "C"}, {"STANDARD", "c_std_11"}}},
      {"rust",
       "a backend in Rust",
       "rust_plugin",
       "rust",
       &cargo_build(),
       {{"rustcurrent", "@NAME@"},
        {"FP8 current scaling with a weight cache",
         "one line for octavo plugin list: what @NAME@ does"},
        {"Current", "@CLASS@Backend"},
        {"../../sdk/rust/octavo-sys", "octavo/share/octavo/rust/octavo-sys"}},
       {}},
      {"kernels-c",
       "kernels for a device, in C",
       "kernels_plugin",
       "kernels",
       &cmake_build(),
       {{"kernels_plugin", "@NAME@"}, {"kernels.c", "@NAME@.c"}},
       {{"IN", "C"}, {"LANGUAGE", "C"}, {"STANDARD", "c_std_11"}, {"LIBRARY", "m"}}},
      {"kernels-cpp",
       "kernels for a device, in C++",
       "kernels_cpp",
       "kernels",
       &cmake_build(),
       {{"kernels_cpp", "@NAME@"}, {"kernels.cpp", "@NAME@.cpp"}},
       {{"IN", "C++"},
        {"LANGUAGE", "CXX"},
        {"STANDARD", "cxx_std_17"},
        {"LIBRARY", "octavo::format"}}},
      {"host-cpp",
       "a program in C++ that trains",
       "mlp_host",
       "host",
       &cmake_build(),
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
       &cmake_build(),
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
