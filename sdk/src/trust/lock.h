// Lock file: `octavo.lock` next to the configuration: what `octavo plugin lock` found there, so
// that a later run can refuse everything else.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/src/base/verdict.h"
#include "sdk/src/plugin/manifest.h"

namespace octavo {

inline constexpr const char *kLockFile = "octavo.lock";

// One plugin for one platform.
struct LockedPlugin {
  std::string name;
  std::string platform;
  std::string version;
  std::string abi;              // "1.0"
  std::string sha256;           // of the library
  std::string manifest_sha256;  // of the manifest
  std::string verdict;          // verdict_digest of what it answered
};

struct Lock {
  std::vector<LockedPlugin> plugins;

  // The entry of this platform, or null.
  const LockedPlugin *find(const std::string &name) const;
};

// Strict: an unknown key is an error. Throws Failure(OCTAVO_INVALID, "octavo.lock", ...).
Lock parse_lock(std::string_view text, const std::string &path);

// The text of the file, in the order of names.
std::string lock_text(const Lock &lock);

// Writes next to `path`, flushes, renames: the file is the old one or the new one at any time.
// Throws Failure(OCTAVO_NO_RESOURCE).
void write_lock(const std::string &path, const Lock &lock);

// What this plugin is now.
LockedPlugin locked_plugin(const Manifest &manifest, const std::string &sha256,
                           const std::vector<Verdict> &verdicts);

// A hash of level, decision and reason of each verdict, in order: what a plugin answered about this
// machine, without words and numbers that differ from run to run.
std::string verdict_digest(const std::vector<Verdict> &verdicts);

// What differs between the entry and the plugin, the verdict aside; empty when nothing does.
std::string lock_drift(const LockedPlugin &entry, const LockedPlugin &now);

}  // namespace octavo
