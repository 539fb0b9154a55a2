// The strict configuration: four layers over one table of core keys, errors that name the place.
#include "config.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "config_keys.h"
#include "failure.h"
#include "remedy.h"
#include "text.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.config";

[[noreturn]] void fail(const std::string &where, const std::string &text, Mend mend) {
  throw Failure(OCTAVO_INVALID, kDomain, where + ": " + text).mended_by(std::move(mend));
}

class Loader {
 public:
  explicit Loader(const octavo_open_desc &desc) : desc_(desc) {}

  Config load() {
    for (const ConfigKey &key : config_keys()) values_[key.name] = {key.initial, "default"};
    file();
    environment("OCTAVO_MIXED_PRECISION", "mixed_precision");
    environment("OCTAVO_BACKEND", "fp8.backend");
    overrides();
    return finish();
  }

 private:
  void file() {
    const std::string path(view(desc_.config_path));
    config_.name = path.empty() ? "(no file)" : path;
    if (!path.empty()) {
      const auto parent = std::filesystem::absolute(path).parent_path();
      config_.directory = parent.string();
    }
    std::string text(view(desc_.config_text));
    if (desc_.config_text.data == nullptr) {
      if (path.empty()) return;
      text = read_file(path, kDomain);
    } else if (path.empty()) {
      config_.name = "octavo.toml";
    }
    config_.text = std::move(text);
    config_.has_file = true;
    for (TomlEntry &entry : parse_toml(config_.text, config_.name, kDomain)) {
      const std::string where =
          config_.name + ":" + std::to_string(entry.line) + ":" + std::to_string(entry.column);
      accept(entry.path, std::move(entry.value), where, where);
    }
  }

  void environment(const char *variable, const char *key) {
    const char *value = std::getenv(variable);
    if (value != nullptr && *value != '\0')
      set(key, std::string(value), variable, std::string("environment variable ") + variable);
  }

  void overrides() {
    if (desc_.overrides == nullptr && desc_.override_count != 0)
      fail("overrides",
           "expected the address of " + std::to_string(desc_.override_count) +
               " values, found null; pass override_count 0 when there are none",
           {});
    for (uint64_t i = 0; i < desc_.override_count; ++i) {
      const octavo_option_value &o = desc_.overrides[i];
      const std::string name(view(o.name));
      std::vector<std::string> path;
      std::istringstream parts(name);
      for (std::string part; std::getline(parts, part, '.');) path.push_back(part);
      // A backend's id may hold dots: fp8.<id>.<option>.
      while (path.size() > 3 && path[0] == "fp8") {
        path[1] += '.' + path[2];
        path.erase(path.begin() + 2);
      }
      TomlValue value;
      switch (o.value.type) {
        case OCTAVO_VALUE_INT: value = o.value.integer; break;
        case OCTAVO_VALUE_REAL: value = o.value.real; break;
        case OCTAVO_VALUE_BOOL: value = o.value.integer != 0; break;
        case OCTAVO_VALUE_TEXT: value = std::string(view(o.value.text)); break;
        default:
          fail("override " + name,
               "expected a value type of 1 to 4, found " + std::to_string(o.value.type),
               {.key = name, .origin = kOverride});
      }
      accept(path, std::move(value), kOverride, "override " + name);
    }
  }

  // One entry of any layer. `where` opens messages.
  void accept(const std::vector<std::string> &path, TomlValue value, const std::string &origin,
              const std::string &where) {
    if (path.size() == 3 && path[0] == "plugin" && path[2] == "manifest") {
      const auto *manifest = std::get_if<std::string>(&value);
      if (manifest == nullptr)
        fail(where, "plugin.manifest: expected a text, found " + kind_of(value),
             {.key = dotted(path), .origin = origin});
      config_.manifests.push_back(*manifest);
      config_.plugin_entries.push_back({dotted(path), {std::move(value), origin}});
      return;
    }
    const std::string name = dotted(path);
    const bool core = values_.count(name) != 0;
    const auto *other = std::get_if<OtherToml>(&value);
    if (other != nullptr && other->kind == "table") {
      if (core)
        fail(where, name + ": expected " + kind_of(values_[name].value) + ", found a table",
             {.key = name, .origin = origin});
      if (is_key_table(name)) return;  // an empty [fp8] or [fp8.require] says nothing
      if (path.size() == 2 && path[0] == "fp8") {
        config_.backend_options[path[1]];
        return;
      }
    } else if (!core && path.size() == 3 && path[0] == "fp8" &&
               !is_key_table(path[0] + "." + path[1])) {
      config_.backend_options[path[1]][path[2]] = {std::move(value), origin};
      return;
    }
    if (!core) refuse_unknown_key(name, origin, where);
    set(name, std::move(value), origin, where);
  }

  void set(const std::string &name, TomlValue value, const std::string &origin,
           const std::string &where) {
    values_[name] = {checked_value(name, std::move(value), origin, where), origin};
  }

  Config finish() {
    auto text = [&](const char *name) { return std::get<std::string>(values_.at(name).value); };
    auto list = [&](const char *name) {
      return std::get<std::vector<std::string>>(values_.at(name).value);
    };
    config_.mixed_precision = text("mixed_precision");
    config_.backend = text("fp8.backend");
    config_.preference = list("fp8.preference");
    config_.fallback = list("fp8.fallback");
    config_.skip = list("layers.skip");
    auto flag = [&](const char *name) { return std::get<bool>(values_.at(name).value); };
    config_.require.native = flag("fp8.require.native");
    config_.require.deterministic = flag("fp8.require.deterministic");
    config_.require.graph_capture = flag("fp8.require.graph_capture");
    config_.require.speed = text("fp8.require.speed");
    config_.require.encodings = list("fp8.require.encodings");
    config_.require.scaling = list("fp8.require.scaling");
    config_.require.recipes = list("fp8.require.recipes");
    config_.min_gain = text("layers.min_gain");
    config_.device = text("device.kind");
    config_.plugin_path = list("plugins.path");
    config_.trust = text("plugins.trust");
    config_.pins = list("plugins.pins");
    config_.keys = list("plugins.keys");
    config_.locked = std::get<bool>(values_.at("plugins.locked").value);
    config_.probe = text("plugins.probe");
    config_.probe_timeout_ms =
        static_cast<int>(std::get<int64_t>(values_.at("plugins.probe_timeout_ms").value));
    for (const ConfigKey &key : config_keys())
      config_.settings.emplace_back(key.name, values_.at(key.name));
    if (config_.backend == "auto" && config_.preference.empty())
      fail(config_.origin("fp8.preference"),
           "fp8.preference: expected at least one backend while fp8.backend is \"auto\", found "
           "none",
           {.key = "fp8.preference",
            .origin = config_.origin("fp8.preference"),
            .value = "[\"te\"]"});
    return std::move(config_);
  }

  const octavo_open_desc &desc_;
  Config config_;
  std::map<std::string, Setting> values_;
};

}  // namespace

const std::string &Config::origin(const std::string &key) const {
  for (const auto &[setting_name, setting] : settings)
    if (setting_name == key) return setting.origin;
  return name;
}

Config load_config(const octavo_open_desc &desc) {
  return Loader(desc).load();
}

std::string read_file(const std::string &path, const char *domain) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec))
    throw Failure(OCTAVO_INVALID, domain, path + ": expected a file, found a directory")
        .mended_by({.command = "touch " + shell_word(path + "/octavo.toml")});
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const int error = errno;
    throw Failure(
        OCTAVO_INVALID, domain,
        path + ": cannot be read: " + std::strerror(error) + "; check the path and its permissions")
        .mended_by({.command = (error == EACCES ? "chmod u+r " : "touch ") + shell_word(path)});
  }
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace octavo
