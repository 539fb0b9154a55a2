// Config: what octavo.toml, the environment and the caller ask for. Core keys are checked here; the
// options of a backend are kept as written until the backend itself has declared what it takes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "requirements.h"
#include "toml.h"

namespace octavo {

// The origin of what the caller sets, above file and environment.
inline constexpr const char *kOverride = "override";

// One value and where it came from: "octavo.toml:3:1", "OCTAVO_BACKEND", kOverride or "default".
struct Setting {
  TomlValue value;
  std::string origin;
};

struct Config {
  std::string name;       // of the file, for messages; "(no file)" without one
  std::string directory;  // of the file; empty without one
  std::string text;       // of the file
  bool has_file = false;  // a file was read, or its text was given
  std::string mixed_precision;
  std::string backend;
  std::vector<std::string> preference;
  std::vector<std::string> fallback;
  Requirements require;
  std::vector<std::string> skip;
  std::string min_gain;
  std::string device;
  std::vector<std::string> plugin_path;
  std::string trust;
  std::vector<std::string> pins;
  std::vector<std::string> keys;
  bool locked = false;
  std::string probe;
  int probe_timeout_ms = 0;
  std::vector<std::string> manifests;                           // [[plugin]] manifest = "..."
  std::vector<std::pair<std::string, Setting>> plugin_entries;  // the same with their origins
  // [fp8.<id>], by id, then by option name.
  std::map<std::string, std::map<std::string, Setting>> backend_options;
  // Every core key with its origin, in the order of the schema.
  std::vector<std::pair<std::string, Setting>> settings;

  // Where `key` was set, for messages.
  const std::string &origin(const std::string &key) const;
};

// The largest plugins.probe_timeout_ms.
constexpr int kMaxProbeTimeout = 600000;

// Reads, merges and checks. Throws Failure(OCTAVO_INVALID, "octavo.config", ...).
Config load_config(const octavo_open_desc &desc);

// The file's bytes. Throws Failure naming the path and the cause.
std::string read_file(const std::string &path, const char *domain);

}  // namespace octavo
