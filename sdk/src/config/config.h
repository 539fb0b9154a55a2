// Config: what octavo.toml, the environment and the caller ask for. Core keys are checked here; the
// options of a backend are kept as written until the backend itself has declared what it takes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "octavo/octavo.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/config/config_keys.h"

namespace octavo {

// The origin of what the caller sets, above file and environment.
inline constexpr const char *kOverride = "override";

// One value and where it came from: "octavo.toml:3:1", "OCTAVO_BACKEND", kOverride or "default".
struct Setting {
  TomlValue value;
  std::string origin;
};

// One [[layers.rule]]: either a place, or options of backends that differ for its layers.
struct LayerRule {
  std::string key;               // "layers.rule.0"
  Setting match;                 // shell patterns; its origin is the rule's
  std::optional<Setting> place;  // "host", or "fp8" with the options of the session
  // [fp8.<id>] of these layers, by id, then by option name.
  std::map<std::string, std::map<std::string, Setting>> options;

  const std::vector<std::string> &patterns() const {
    static const std::vector<std::string> none;
    const auto *texts = std::get_if<std::vector<std::string>>(&match.value);
    return texts == nullptr ? none : *texts;
  }
  bool is_of_host() const { return place && std::get<std::string>(place->value) == "host"; }
};

inline constexpr char kConfigDomain[] = "octavo.config";

// Throws Failure(OCTAVO_INVALID). where: a key or an origin.
[[noreturn]] void fail_config(const std::string &where, const std::string &text, Fix fix);

class Config {
 public:
  Config();  // every core key has its initial value

  // The value of a core key.
  template <typename T>
  const T &operator[](Key<T> key) const noexcept {
    return *std::get_if<T>(&find(key.name)->value);
  }
  template <typename T>
  T &operator[](Key<T> key) noexcept {
    return const_cast<T &>(std::as_const(*this)[key]);
  }
  // Where it was set, for messages.
  template <typename T>
  const std::string &origin(Key<T> key) const noexcept {
    return find(key.name)->origin;
  }
  // The edit that gives it another value.
  template <typename T>
  Fix change(Key<T> key, std::type_identity_t<T> value) const {
    return {.key = key.name, .origin = origin(key), .value = show(TomlValue(std::move(value)))};
  }
  // By name; null for anything but a core key.
  const Setting *find(std::string_view name) const noexcept;

  std::string name;       // of the file, for messages; "(no file)" without one
  std::string directory;  // of the file; empty without one
  std::string text;       // of the file
  bool has_file = false;  // a file was read, or its text was given
  // Every core key, in the order of config_keys().
  std::vector<std::pair<std::string, Setting>> settings;
  // The texts of [[plugin]] manifest = "...", each with its key.
  std::vector<std::pair<std::string, Setting>> manifests;
  // [fp8.<id>], by id, then by option name.
  std::map<std::string, std::map<std::string, Setting>> backend_options;
  std::vector<LayerRule> layer_rules;  // in order: the first one that matches decides
};

// The largest plugins.probe_timeout_ms.
constexpr int kMaxProbeTimeout = 600000;

// Reads, merges and checks. Throws Failure(OCTAVO_INVALID, "octavo.config", ...).
Config load_config(const octavo_open_desc &desc);

// The file's bytes, at most one more than kMostTomlBytes. Throws Failure naming the path and the
// cause.
std::string read_file(const std::string &path, const char *domain);

}  // namespace octavo
