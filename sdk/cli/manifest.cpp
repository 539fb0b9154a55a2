// octavo manifest: prints the manifest of a plugin, for build systems other than CMake.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "common.h"

namespace octavo::cli {
namespace {

struct Stated {
  std::string name, version, description, library;
};

#if defined(__x86_64__)
constexpr const char *kPlatform = "linux-x86_64";
#else
constexpr const char *kPlatform = "linux-aarch64";
#endif

// A basic string of TOML; control characters are refused before.
std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string problem_of_text(const std::string &text) {
  const bool has_control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  return has_control ? "expected a text without control characters" : "";
}

// As sdk/cmake/octavo-plugin.toml.in, which octavo_add_plugin() fills in.
void print(const Stated &s) {
  std::printf(
      "manifest_version = 1\n\n[plugin]\nname = %s\nversion = %s\ndescription = %s\n\n"
      "[abi]\nmajor = %d\nminor = %d\nbuilt_minor = %d\nheaders = \"%s\"\n\n"
      "[library]\n%s = %s\n\n[requires]\nos = \"linux\"\n\n"
      "[provides]\ninterfaces = [\"octavo.backend/1\"]\n",
      quoted(s.name).c_str(), quoted(s.version).c_str(), quoted(s.description).c_str(),
      OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR, OCTAVO_ABI_MINOR, OCTAVO_ABI_HEADERS, kPlatform,
      quoted(s.library.empty() ? s.name + ".so" : s.library).c_str());
}

}  // namespace

void add_manifest(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "manifest", "Print the manifest of a plugin built with the headers of this octavo");
  auto stated = std::make_shared<Stated>();
  command->add_option("name", stated->name, "The plugin's id")
      ->required()
      ->check(CLI::Validator(problem_of_name, "ID"));
  command->add_option("--version", stated->version, "The plugin's version")
      ->required()
      ->check(CLI::Validator(problem_of_text, ""));
  command->add_option("--description", stated->description, "One line for octavo list")
      ->check(CLI::Validator(problem_of_text, ""));
  command
      ->add_option("--library", stated->library,
                   "The library's file, relative to the manifest; NAME.so without it")
      ->check(CLI::Validator(problem_of_text, ""));
  command->callback([stated, &exit] {
    print(*stated);
    exit = kOk;
  });
}

}  // namespace octavo::cli
