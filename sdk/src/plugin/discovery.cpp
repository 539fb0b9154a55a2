// First match by name wins; the current directory and the linker's path are never searched. Places
// relative to the configuration file come last: a file that came with a repository adds plugins
// once its reader has allowed that, and replaces none.
#include "sdk/src/plugin/discovery.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/file/allowed.h"
#include "sdk/src/file/listing.h"
#include "sdk/src/file/probe_places.h"
#include "sdk/src/plugin/manifest.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr const char *kPrivileged = "this process has more rights than its user";
constexpr const char *kInstalled =
    "a plugin of this name is installed, and the folder of a configuration file replaces none; "
    "rename it, or name its directory in OCTAVO_PLUGIN_PATH";
constexpr const char *kNotAllowed =
    "plugins that a configuration file brings along run code here, which nobody has allowed; look "
    "at "
    "them, then run `octavo plugin allow` with that file, or name the directory in "
    "OCTAVO_PLUGIN_PATH";
constexpr const char *kNotNamed =
    "it holds plugins, and the configuration file next to it does not name it; add it to "
    "plugins.path";
constexpr const char *kRelative = "relative, and the current directory never matters";

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Finder {
 public:
  explicit Finder(bool privileged) : privileged_(privileged) {}

  Discovery run(const Config &config, const octavo_open_desc &desc) {
    for (const auto &[key, setting] : config.manifests) {
      const std::string &path = std::get<std::string>(setting.value);
      const bool relative = fs::path(path).is_relative();
      if (relative && config.directory.empty())
        throw Failure(OCTAVO_INVALID, "octavo.config",
                      "plugin.manifest: expected an absolute path, since there is no configuration "
                      "file to be relative to, found \"",
                      path, "\"");
      if (!relative) add(path, "[[plugin]] in " + config.name);
    }
    for (const std::string &directory : split(environment("OCTAVO_PLUGIN_PATH"), ':'))
      search(directory, "OCTAVO_PLUGIN_PATH", true, privileged_);
    for (const std::string &directory : config[key::kPluginPath]) {
      if (config.directory.empty() || fs::path(directory).is_absolute())
        search(directory, "plugins.path", true, false);
    }
    if (desc.plugin_dirs == nullptr && desc.plugin_dir_count != 0)
      throw Failure(OCTAVO_INVALID, "octavo.discovery", "plugin_dirs: expected the address of ",
                    desc.plugin_dir_count,
                    " directories, found null; pass plugin_dir_count 0 for no directories");
    for (uint64_t i = 0; i < desc.plugin_dir_count; ++i)
      search(std::string(view(desc.plugin_dirs[i])), "given by the host", true, false);
    const std::string data = environment("XDG_DATA_HOME");
    const std::string home = environment("HOME");
    if (!data.empty())
      search(data + "/octavo/plugins", "user data directory", false, privileged_);
    else if (!home.empty())
      search(home + "/.local/share/octavo/plugins", "user data directory", false, privileged_);
    // Where an installation with the prefix ~/.local puts them.
    if (!home.empty())
      search(home + "/.local/lib/octavo/plugins", "user library directory", false, privileged_);
    const fs::path own = fs::path(liboctavo_file()).parent_path();
    search((own / "octavo/plugins").string(), kOwnPlace, false, false);
    if (!config.directory.empty()) search_near(config);
    return std::move(result_);
  }

 private:
  // The places that are relative to the configuration file.
  void search_near(const Config &config) {
    const fs::path base(config.directory);
    const size_t others = result_.manifests.size();
    for (const auto &[key, setting] : config.manifests) {
      const fs::path path = std::get<std::string>(setting.value);
      if (path.is_absolute()) continue;
      const std::string full = (base / path).string(), origin = "[[plugin]] in " + config.name;
      if (may_search((base / path).parent_path().string(), full, origin)) add(full, origin);
    }
    for (const std::string &named : config[key::kPluginPath]) {
      if (fs::path(named).is_absolute()) continue;
      const std::string full = (base / named).string();
      if (may_search(full, full, "plugins.path")) search(full, "plugins.path", true, false);
    }
    look_at_plugins((base / "plugins").string());
    const auto installed = std::span(result_.manifests).first(others);
    for (const FoundManifest &m : std::span(result_.manifests).subspan(others))
      if (std::ranges::any_of(installed, [&](const auto &i) { return i.name == m.name; }))
        ignore(m.path, m.origin, kInstalled, true);
  }

  // Otherwise `what`, which is in this directory, is ignored.
  bool may_search(const std::string &directory, const std::string &what,
                  const std::string &origin) {
    if (privileged_) {
      ignore(what, origin, kPrivileged, true);
      return false;
    }
    std::error_code error;
    if (!fs::exists(directory, error) || is_allowed(directory)) return true;
    ignore(what, origin, kNotAllowed, true);
    result_.places.back().waits = true;
    return false;
  }

  // The usual name, where a plugin that nobody names must not be missed in silence.
  void look_at_plugins(const std::string &directory) {
    const auto is_it = [&](const SearchPlace &p) {
      return fs::path(p.directory).lexically_normal() == fs::path(directory).lexically_normal();
    };
    int error = 0;
    if (privileged_ || std::ranges::any_of(result_.places, is_it)) return;
    if (files_in(directory, kManifestSuffix, &error).empty()) return;
    ignore(directory, "next to the config file", kNotNamed, true);
    result_.places.back().unnamed = true;
  }

  void ignore(const std::string &what, const std::string &origin, const char *why, bool asked) {
    result_.places.push_back({what, origin, false, why, asked});
  }

  // `ignored`: the user of a privileged process chose this place.
  void search(const std::string &directory, const std::string &origin, bool asked, bool ignored) {
    if (directory.empty()) return;
    if (ignored) return ignore(directory, origin, kPrivileged, asked);
    if (!fs::path(directory).is_absolute()) return ignore(directory, origin, kRelative, asked);
    int error = 0;
    const std::vector<std::string> files = files_in(directory, kManifestSuffix, &error);
    SearchPlace place{directory, origin, error == 0 || error == EACCES, "", asked};
    place.closed = error == EACCES;
    if (place.closed && asked)
      throw ResourceUnavailable(
          concat(directory, " (", origin, "): cannot be read: ", std::strerror(error)),
          concat("give this user access to it, or take it out of ", origin), Stage::kDiscovery);
    if (place.closed) place.ignored = std::string("it cannot be read: ") + std::strerror(error);
    result_.places.push_back(place);
    for (const std::string &file : files) add(file, origin);
  }

  void add(const std::string &path, const std::string &origin) {
    std::string name = fs::path(path).filename().string();
    if (name.ends_with(kManifestSuffix)) name.resize(name.size() - kManifestSuffix.size());
    const FoundManifest *winner = result_.find(name);
    if (winner != nullptr && winner->path == path) return;
    result_.manifests.push_back({name, path, origin, winner ? winner->path : ""});
  }

  const bool privileged_;
  Discovery result_;
};

}  // namespace

const FoundManifest *Discovery::find(const std::string &name) const {
  for (const FoundManifest &m : manifests)
    if (m.name == name) return &m;  // which shadows all that follow
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
    texts.push_back(p.directory + " (" + p.origin +
                    (!p.ignored.empty() ? ", ignored: " + p.ignored
                     : p.exists         ? ""
                                        : ", does not exist") +
                    ")");
  return enumerate(texts);
}

const SearchPlace *Discovery::unsearched_with(const std::string &name) const {
  const std::string file = name + std::string(kManifestSuffix);
  std::error_code error;
  for (const SearchPlace &p : places)
    if ((p.waits || p.unnamed) && (fs::path(p.directory).filename() == file ||
                                   fs::exists(fs::path(p.directory) / file, error)))
      return &p;
  return nullptr;
}

void Discovery::must_know(const std::string &name) const {
  for (const SearchPlace &p : places)
    if (p.closed)
      throw ResourceUnavailable(
          concat("whether plugin \"", name, "\" is installed is not known: ", p.directory, " (",
                 p.origin, ") cannot be read, and no other place has it"),
          "give this user access to the directory, or set HOME and XDG_DATA_HOME to this user's "
          "own",
          Stage::kDiscovery);
}

Discovery discover(const Config &config, const octavo_open_desc &desc, bool privileged) {
  return Finder(privileged).run(config, desc);
}

}  // namespace octavo
