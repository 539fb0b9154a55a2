// octavo plugin manifest: prints the manifest of a plugin, for build systems other than CMake, and
// the options that a plugin's table has, for its manifest. Only --options runs code of the plugin.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "common.h"
#include "octavo/hpp/text.hpp"
#include "octavo/plugin.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/config/declared.h"

namespace octavo::cli {
namespace {

struct Stated {
  std::string name, version, description, library, options;
  std::vector<std::string> kernels, over;  // a kind and its DLPack type; kinds
  bool only_options = false;
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

std::string quoted_list(const std::vector<std::string> &texts) {
  std::string result;
  for (const std::string &text : texts) result += (result.empty() ? "[" : ", ") + quoted(text);
  return result + "]";
}

std::string problem_of_text(const std::string &text) {
  const bool has_control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  return has_control ? "expected a text without control characters" : "";
}

// The backend in a library, by its own table. The library stays open.
const octavo_backend *open_backend(const std::string &name, const std::string &library) {
  const auto refuse = [&](const std::string &words) {
    throw Failure(OCTAVO_UNSUPPORTED, "octavo.manifest", library, ": ", words);
  };
  std::error_code error;
  const std::string path = std::filesystem::absolute(library, error).string();
  void *opened = error ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr)
    refuse("cannot be loaded: " + take_words(error ? error.message().c_str() : dlerror()));
  const auto query =
      reinterpret_cast<decltype(&octavo_plugin_query_1)>(dlsym(opened, OCTAVO_PLUGIN_SYMBOL));
  const octavo_plugin *plugin = nullptr;
  if (query == nullptr || query(console_host(), &plugin) != OCTAVO_OK || plugin == nullptr ||
      !OCTAVO_HAS(plugin, octavo_plugin, get_interface) || plugin->abi_major != OCTAVO_ABI_MAJOR)
    refuse("expected a plugin of " + versions() + ", found none");
  if (const std::string id = take_text(plugin->id); id != name)
    refuse("expected the id \"" + name + "\", found \"" + id + "\"");
  const auto *backend =
      static_cast<const octavo_backend *>(plugin->get_interface(OCTAVO_STR(OCTAVO_BACKEND_ID)));
  if (backend == nullptr || !OCTAVO_HAS(backend, octavo_backend, list_options) ||
      backend->list_options == nullptr)
    refuse("expected the interface " OCTAVO_BACKEND_ID ", whose options it would list, found none");
  return backend;
}

// As sdk/cmake/octavo-plugin.toml.in, which octavo_add_plugin() fills in.
void print(const Stated &s) {
  std::string kernels, interfaces = "\"octavo.backend/1\"";
  if (!s.kernels.empty()) {
    kernels =
        "\n[kernels]\nkind = " + quoted(s.kernels[0]) + "\ndevice_type = " + s.kernels[1] + "\n";
    interfaces = "\"octavo.kernels/1\"";
    if (s.kernels[1] != std::to_string(OCTAVO_DEVICE_CPU)) interfaces += ", \"octavo.memory/1\"";
  } else if (!s.over.empty()) {
    kernels = "\n[kernels]\nover = " + quoted_list(s.over) + "\n";
    interfaces = "\"octavo.kernels.layer/1\"";
  }
  say("manifest_version = 1\n\n[plugin]\nname = %s\nversion = %s\ndescription = %s\n\n"
      "[abi]\nmajor = %d\nminor = %d\nbuilt_minor = %d\n\n"
      "[library]\n%s = %s\n%s\n[requires]\nos = \"linux\"\n\n"
      "[provides]\ninterfaces = [%s]\n",
      quoted(s.name).c_str(), quoted(s.version).c_str(), quoted(s.description).c_str(),
      OCTAVO_ABI_MAJOR, OCTAVO_TARGET_MINOR, OCTAVO_ABI_MINOR, kPlatform,
      quoted(s.library.empty() ? s.name + ".so" : s.library).c_str(), kernels.c_str(),
      interfaces.c_str());
}

int run(const Stated &s) {
  if (!s.only_options && s.version.empty()) throw CLI::RequiredError("manifest: --version");
  std::string options;
  try {
    if (!s.options.empty())
      options = options_toml(declared_options(*open_backend(s.name, s.options), s.name));
  } catch (const Failure &f) {
    failed(f);
    return kRefused;  // whatever is wrong with the plugin
  }
  if (s.only_options)
    say("# As `octavo plugin manifest %s --options LIBRARY --only-options` prints them.\n",
        s.name.c_str());
  else
    print(s);
  say("%s", options.c_str());
  return kOk;
}

}  // namespace

void add_manifest(CLI::App &plugin, int &exit) {
  CLI::App *command = plugin.add_subcommand(
      "manifest", "Print the manifest of a plugin built with the headers of this octavo");
  auto stated = std::make_shared<Stated>();
  command->add_option("name", stated->name, "The plugin's id")
      ->required()
      ->check(CLI::Validator(problem_of_name, "ID"));
  CLI::Option *version = command->add_option("--version", stated->version, "The plugin's version")
                             ->check(CLI::Validator(problem_of_text, ""));
  command->add_option("--description", stated->description, "One line for octavo plugin list")
      ->check(CLI::Validator(problem_of_text, ""));
  command
      ->add_option("--library", stated->library,
                   "The library's file, relative to the manifest; NAME.so without it")
      ->check(CLI::Validator(problem_of_text, ""));
  CLI::Option *options =
      command
          ->add_option("--options", stated->options,
                       "Add the options that this library of the plugin declares; runs its code")
          ->check(CLI::ExistingFile);
  CLI::Option *kernels =
      command
          ->add_option(
              "--kernels", stated->kernels,
              "The plugin has kernels, for this kind of device and its DLPack type, as in npu 12")
          ->type_name("KIND TYPE")
          ->expected(2)
          ->excludes(options);
  kernels->check(CLI::Validator(problem_of_name, "").application_index(0))
      ->check(CLI::Range(0, 65535).application_index(1));
  command->add_option("--over", stated->over, "The plugin is a layer over kernels of these kinds")
      ->check(CLI::Validator(problem_of_name, ""))
      ->excludes(options)
      ->excludes(kernels);
  command
      ->add_flag("--only-options", stated->only_options,
                 "Print only these, for ID.options.toml next to the plugin's CMakeLists.txt")
      ->needs(options)
      ->excludes(version);
  command->callback([stated, &exit] { exit = run(*stated); });
}

}  // namespace octavo::cli
