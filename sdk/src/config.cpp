// The strict configuration: one table of core keys, four layers, and errors that name the place.
#include "config.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "failure.h"
#include "text.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.config";

struct Key {
  const char *name;
  TomlValue initial;
  std::vector<std::string> choices;  // of texts and of the elements of lists; empty: any
};

const std::vector<Key> &keys() {
  static const std::vector<std::string> any;
  static const std::vector<Key> table = {
      {"schema", int64_t{1}, any},
      // "fp8" and not "no": a file that configures FP8 must never silently train without it.
      {"mixed_precision", std::string("fp8"), {"no", "fp16", "bf16", "fp8"}},
      {"fp8.backend", std::string("auto"), any},
      {"fp8.preference", std::vector<std::string>{"te"}, any},
      {"fp8.fallback", std::vector<std::string>{}, any},
      {"layers.skip", std::vector<std::string>{}, any},
      {"layers.min_gain", std::string("auto"), {"auto", "torchao", "off"}},
      {"device.kind", std::string("auto"), {"auto", "cpu", "cuda"}},
      {"plugins.path", std::vector<std::string>{}, any},
      {"plugins.trust", std::string("owner"), {"owner", "dev"}},
  };
  return table;
}

[[noreturn]] void fail(const std::string &where, const std::string &text) {
  throw Failure(OCTAVO_INVALID, kDomain, where + ": " + text);
}

std::string quoted_choices(const std::vector<std::string> &choices) {
  std::vector<std::string> quoted;
  for (const std::string &choice : choices) quoted.push_back('"' + choice + '"');
  return enumerate(quoted, "or");
}

class Loader {
 public:
  explicit Loader(const octavo_open_desc &desc) : desc_(desc) {}

  Config load() {
    for (const Key &key : keys()) values_[key.name] = {key.initial, "default"};
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
    for (TomlEntry &entry : parse_toml(text, config_.name, kDomain)) {
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
               "expected a value type of 1 to 4, found " + std::to_string(o.value.type));
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
        fail(where, "plugin.manifest: expected a text, found " + kind_of(value));
      config_.manifests.push_back(*manifest);
      return;
    }
    const std::string name = dotted(path);
    const bool core = values_.count(name) != 0;
    const auto *other = std::get_if<OtherToml>(&value);
    if (other != nullptr && other->kind == "table") {
      if (core)
        fail(where, name + ": expected " + kind_of(values_[name].value) + ", found a table");
      if (path.size() == 1 && is_prefix(name)) return;  // an empty [fp8] says nothing
      if (path.size() == 2 && path[0] == "fp8") {
        config_.backend_options[path[1]];
        return;
      }
    } else if (!core && path.size() == 3 && path[0] == "fp8" &&
               !is_prefix(path[0] + "." + path[1])) {
      config_.backend_options[path[1]][path[2]] = {std::move(value), origin};
      return;
    }
    if (!core) unknown(name, where);
    set(name, std::move(value), origin, where);
  }

  static bool is_prefix(const std::string &name) {
    for (const Key &key : keys())
      if (std::string_view(key.name).starts_with(name + ".")) return true;
    return false;
  }

  [[noreturn]] void unknown(const std::string &name, const std::string &where) {
    std::vector<std::string> known;
    for (const Key &key : keys()) known.push_back(key.name);
    const std::string near = nearest(name, known);
    fail(where, "unknown key \"" + name + "\"" +
                    (near.empty() ? "; known keys: " + enumerate(known) +
                                        "; a backend's options stand in [fp8.<backend>]"
                                  : "; did you mean \"" + near + "\"?"));
  }

  void set(const std::string &name, TomlValue value, const std::string &origin,
           const std::string &where) {
    const Key *key = nullptr;
    for (const Key &k : keys())
      if (name == k.name) key = &k;
    if (key->initial.index() == 4 && value.index() == 3)
      value = std::vector<std::string>{std::get<std::string>(value)};  // one text is a list of one
    if (key->initial.index() != value.index())
      fail(where, name + ": expected " + kind_of(key->initial) + ", found " + kind_of(value) +
                      (std::holds_alternative<OtherToml>(value) ? "" : " (" + show(value) + ")"));
    if (name == "schema" && std::get<int64_t>(value) != 1)
      fail(where, "schema: expected 1, the only one that this version reads, found " + show(value));
    if (const auto *text = std::get_if<std::string>(&value); text && !key->choices.empty())
      check_choice(name, *text, key->choices, where);
    values_[name] = {std::move(value), origin};
  }

  static void check_choice(const std::string &name, const std::string &text,
                           const std::vector<std::string> &choices, const std::string &where) {
    for (const std::string &choice : choices)
      if (text == choice) return;
    const std::string near = nearest(text, choices);
    fail(where, name + ": expected " + quoted_choices(choices) + ", found \"" + text + "\"" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
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
    config_.min_gain = text("layers.min_gain");
    config_.device = text("device.kind");
    config_.plugin_path = list("plugins.path");
    config_.trust = text("plugins.trust");
    for (const Key &key : keys()) config_.settings.emplace_back(key.name, values_.at(key.name));
    if (config_.backend == "auto" && config_.preference.empty())
      fail(config_.origin("fp8.preference"),
           "fp8.preference: expected at least one backend while fp8.backend is \"auto\", found "
           "none");
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
    throw Failure(OCTAVO_INVALID, domain, path + ": expected a file, found a directory");
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw Failure(OCTAVO_INVALID, domain,
                  path + ": cannot be read: " + std::strerror(errno) +
                      "; check the path and its permissions");
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace octavo
