// First match by name wins; the current directory and the linker's path are never searched.
#include "discovery.h"

#include <dlfcn.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "failure.h"
#include "text.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".octavo-plugin.toml";

// An environment variable, ignored in a process that runs with raised privileges.
std::string environment(const char *name) {
  if (getauxval(AT_SECURE) != 0) return {};
  const char *value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string directory_of_liboctavo() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void *>(&octavo_version), &info) == 0 || !info.dli_fname)
    return {};
  std::error_code ec;
  return fs::weakly_canonical(info.dli_fname, ec).parent_path().string();
}

class Finder {
 public:
  Discovery run(const Config &config, const octavo_open_desc &desc) {
    for (const std::string &path : config.manifests) {
      fs::path p(path);
      if (p.is_relative() && !config.directory.empty()) p = fs::path(config.directory) / p;
      if (p.is_relative())
        throw Failure(OCTAVO_INVALID, "octavo.config",
                      "plugin.manifest: expected an absolute path, since there is no configuration "
                      "file to be relative to, found \"" +
                          path + "\"");
      add(p.string(), "[[plugin]] in " + config.name);
    }
    std::istringstream parts(environment("OCTAVO_PLUGIN_PATH"));
    for (std::string directory; std::getline(parts, directory, ':');)
      search(directory, "OCTAVO_PLUGIN_PATH");
    for (const std::string &directory : config.plugin_path) {
      fs::path p(directory);
      if (p.is_relative() && !config.directory.empty()) p = fs::path(config.directory) / p;
      search(p.string(), "plugins.path");
    }
    if (!config.directory.empty())
      search((fs::path(config.directory) / "plugins").string(), "beside the config file");
    for (uint64_t i = 0; i < desc.plugin_dir_count; ++i)
      search(std::string(view(desc.plugin_dirs[i])), "given by the host");
    const std::string data = environment("XDG_DATA_HOME");
    const std::string home = environment("HOME");
    if (!data.empty())
      search(data + "/octavo/plugins", "user data directory");
    else if (!home.empty())
      search(home + "/.local/share/octavo/plugins", "user data directory");
    const std::string library = directory_of_liboctavo();
    if (!library.empty()) search(library + "/octavo/plugins", "beside liboctavo");
    return std::move(result_);
  }

 private:
  void search(const std::string &directory, const std::string &origin) {
    // A relative entry would mean the current directory, which must never matter.
    if (directory.empty() || !fs::path(directory).is_absolute()) return;
    std::error_code ec;
    SearchPlace place{directory, origin, fs::is_directory(directory, ec)};
    result_.places.push_back(place);
    if (!place.exists) return;
    std::vector<std::string> files;
    for (const auto &entry : fs::directory_iterator(directory, ec)) {
      const std::string file = entry.path().filename().string();
      if (file.size() > kSuffix.size() && file.ends_with(kSuffix)) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const std::string &file : files) add(file, origin);
  }

  void add(const std::string &path, const std::string &origin) {
    std::string name = fs::path(path).filename().string();
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    const FoundManifest *winner = result_.find(name);
    if (winner != nullptr && winner->path == path) return;
    result_.manifests.push_back({name, path, origin, winner ? winner->path : ""});
  }

  Discovery result_;
};

}  // namespace

const FoundManifest *Discovery::find(const std::string &name) const {
  for (const FoundManifest &m : manifests)
    if (m.name == name && m.shadowed_by.empty()) return &m;
  return nullptr;
}

std::vector<std::string> Discovery::names() const {
  std::vector<std::string> found;
  for (const FoundManifest &m : manifests)
    if (m.shadowed_by.empty()) found.push_back(m.name);
  std::sort(found.begin(), found.end());
  return found;
}

std::string Discovery::places_text() const {
  std::vector<std::string> texts;
  for (const SearchPlace &p : places)
    texts.push_back(p.directory + " (" + p.origin + (p.exists ? ")" : ", does not exist)"));
  return enumerate(texts);
}

Discovery discover(const Config &config, const octavo_open_desc &desc) {
  return Finder().run(config, desc);
}

}  // namespace octavo
