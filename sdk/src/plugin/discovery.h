// Discovery: which manifests the search path holds. Reads directory entries only, no plugin code.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/config/config.h"
#include "sdk/src/file/privilege_path.h"

namespace octavo {

// The origin of plugins that were installed with liboctavo.
inline constexpr const char *kOwnPlace = "next to liboctavo";

struct SearchPlace {
  std::string directory;
  std::string origin;  // "OCTAVO_PLUGIN_PATH", "next to the config file", ...
  bool exists = false;
  std::string ignored;   // why it is not searched; empty: it is
  bool asked = false;    // somebody named it, so that ignoring it is worth a warning
  bool waits = false;    // it would be searched if the user allowed it
  bool unnamed = false;  // it would wait if the configuration file next to it named it
  bool closed = false;   // this user may not read it, so nobody knows what it holds
};

struct FoundManifest {
  std::string name;
  std::string path;
  std::string origin;
  std::string shadowed_by;  // path of the manifest that wins; empty: this one does
};

struct Discovery {
  std::vector<SearchPlace> places;
  std::vector<FoundManifest> manifests;  // in order of precedence

  const FoundManifest *find(const std::string &name) const;
  std::vector<std::string> names() const;
  std::string places_text() const;  // for "looked in ..."
  // The place that waits or is unnamed and holds the plugin `name`; null: there is none.
  const SearchPlace *unsearched_with(const std::string &name) const;
  // Throws ResourceUnavailable when a place is closed: whether it holds the plugin `name` is not
  // known.
  void must_know(const std::string &name) const;
};

// Order: [[plugin]] entries, OCTAVO_PLUGIN_PATH, plugins.path, the binding's directories, the
// user's data directory, octavo/plugins next to liboctavo; then what the configuration file names
// relative to itself, of which only directories that the user has allowed are searched. What a
// privileged process's user alone controls is ignored: the variable, the user's data directory, and
// everything relative to the configuration file. Throws ResourceUnavailable for a place that
// somebody named and that this user may not read.
Discovery discover(const Config &config, const octavo_open_desc &desc,
                   bool privileged = octavo::privileged());

}  // namespace octavo
