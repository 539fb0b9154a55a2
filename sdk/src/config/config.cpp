// The strict configuration: four layers over one table of core keys, errors that name the place.
#include "sdk/src/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/failures.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/config/remedy.h"
#include "sdk/src/config/toml.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {
namespace {

// The file next to this path whose name is the nearest, or that is the only one; empty: none.
std::string toml_like(const std::string &path) {
  const std::filesystem::path wanted(path);
  std::vector<std::string> names;
  std::error_code error;
  const auto folder = wanted.has_parent_path() ? wanted.parent_path() : std::filesystem::path(".");
  for (const auto &entry : std::filesystem::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename();
        name.ends_with(".toml") && !name.ends_with(".octavo-plugin.toml"))
      names.push_back(name);
  const std::string near =
      names.size() == 1 ? names[0] : nearest(wanted.filename().string(), names);
  return near.empty() ? near : (wanted.parent_path() / near).string();
}

class Loader {
 public:
  explicit Loader(const octavo_open_desc &desc) : desc_(desc) {}

  Config load() {
    file();
    environment("OCTAVO_MIXED_PRECISION", "mixed_precision");
    environment("OCTAVO_BACKEND", "fp8.backend");
    overrides();
    config_.layer_rules = rules_.take();
    if (config_[key::kBackend] == "auto" && config_[key::kPreference].empty())
      fail_config(
          config_.origin(key::kPreference),
          "fp8.preference: expected at least one backend while fp8.backend is \"auto\", found none",
          config_.change(key::kPreference, {"te"}));
    return std::move(config_);
  }

 private:
  void file() {
    const std::string path(view(desc_.config_path));
    config_.name = path.empty() ? "(no file)" : path;
    if (!path.empty()) {
      std::error_code error;
      const auto absolute = std::filesystem::absolute(path, error);
      if (error)
        throw Failure(OCTAVO_INVALID, kConfigDomain, path,
                      ": expected a current directory for a relative path, found none (",
                      error.message(), "); change to one, or give an absolute path");
      config_.directory = absolute.parent_path().string();
    }
    std::string text(view(desc_.config_text));
    if (desc_.config_text.data == nullptr) {
      if (path.empty()) return;
      text = read_file(path, kConfigDomain);
    } else if (path.empty()) {
      config_.name = "octavo.toml";
    }
    config_.text = std::move(text);
    config_.has_file = true;
    std::vector<TomlEntry> entries = parse_toml(config_.text, config_.name, kConfigDomain);
    std::stable_sort(entries.begin(), entries.end(), [](const TomlEntry &a, const TomlEntry &b) {
      return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
    Failures wrong;
    for (TomlEntry &entry : entries) {
      const std::string where = concat(config_.name, ":", entry.line, ":", entry.column);
      wrong.take([&] { accept(entry.path, std::move(entry.value), where, where); });
    }
    wrong.refuse();
  }

  void environment(const char *variable, const char *key) {
    const char *value = std::getenv(variable);
    if (value != nullptr && *value != '\0')
      set(key, std::string(value), variable, std::string("environment variable ") + variable);
  }

  void overrides() {
    if (desc_.overrides == nullptr && desc_.override_count != 0)
      fail_config("overrides",
                  concat("expected the address of ", desc_.override_count,
                         " values, found null; pass override_count 0 for no overrides"),
                  {});
    for (uint64_t i = 0; i < desc_.override_count; ++i) {
      const octavo_option_value &o = desc_.overrides[i];
      const std::string name(view(o.name));
      std::vector<std::string> path = split(name, '.');
      // A backend's id may hold dots: fp8.<id>.<option>, also in a rule.
      const size_t id = LayerRuleReader::is_of_rules(path) ? 4 : 1;
      while (path.size() > id + 2 && path[id - 1] == "fp8") {
        path[id] += '.' + path[id + 1];
        path.erase(path.begin() + static_cast<ptrdiff_t>(id) + 1);
      }
      TomlValue value;
      switch (o.value.type) {
        case OCTAVO_VALUE_INT: value = o.value.integer; break;
        case OCTAVO_VALUE_REAL: value = o.value.real; break;
        case OCTAVO_VALUE_BOOL: value = o.value.integer != 0; break;
        case OCTAVO_VALUE_TEXT: value = text_of_override(path, view(o.value.text)); break;
        default:
          fail_config("override " + name,
                      concat("expected a value type of 1 to 4, found ", o.value.type),
                      {.key = name, .origin = kOverride});
      }
      accept(path, std::move(value), kOverride, "override " + name);
    }
  }

  // A list as TOML has it, or the text. Options of backends are never lists.
  TomlValue text_of_override(const std::vector<std::string> &path, std::string_view text) const {
    const std::string name = dotted(path);
    const bool is_option = config_.find(name) == nullptr && path.back() != "match";
    const size_t second = text.find_first_not_of(" \t", 1);
    if (is_option || !text.starts_with("[") || second == text.npos ||
        std::string_view("\"']").find(text[second]) == std::string_view::npos)
      return std::string(text);
    auto entries = parse_toml("list = " + std::string(text), "override " + name, kConfigDomain);
    return std::move(entries.front().value);
  }

  // One entry of any layer. `where` opens messages.
  void accept(const std::vector<std::string> &path, TomlValue value, const std::string &origin,
              const std::string &where) {
    if (path.size() == 3 && path[0] == "plugin" && path[2] == "manifest") {
      if (!std::holds_alternative<std::string>(value))
        fail_config(where, "plugin.manifest: expected a text, found " + kind_of(value),
                    {.key = dotted(path), .origin = origin});
      config_.manifests.push_back({dotted(path), {std::move(value), origin}});
      return;
    }
    if (LayerRuleReader::is_of_rules(path))
      return rules_.accept(path, std::move(value), origin, where);
    const std::string name = dotted(path);
    const Setting *core = config_.find(name);
    const auto *other = std::get_if<OtherToml>(&value);
    if (other != nullptr && other->kind == "table") {
      if (core != nullptr)
        fail_config(where, name + ": expected " + kind_of(core->value) + ", found a table",
                    {.key = name, .origin = origin});
      if (is_key_table(name)) return;  // an empty [fp8] or [fp8.require] sets nothing
      if (path.size() == 2 && path[0] == "fp8") {
        config_.backend_options[path[1]];
        return;
      }
    } else if (core == nullptr && path.size() == 3 && path[0] == "fp8" &&
               !is_key_table(path[0] + "." + path[1])) {
      config_.backend_options[path[1]][path[2]] = {std::move(value), origin};
      return;
    }
    if (core == nullptr) refuse_unknown_key(name, origin, where);
    set(name, std::move(value), origin, where);
  }

  void set(const std::string &name, TomlValue value, const std::string &origin,
           const std::string &where) {
    const Setting checked{checked_value(name, std::move(value), origin, where), origin};
    for (auto &[key, setting] : config_.settings)
      if (key == name) setting = checked;
  }

  const octavo_open_desc &desc_;
  Config config_;
  LayerRuleReader rules_;
};

}  // namespace

void fail_config(const std::string &where, const std::string &text, Fix fix) {
  throw Failure(OCTAVO_INVALID, kConfigDomain, where, ": ", text).with_fix(std::move(fix));
}

Config::Config() {
  for (const ConfigKey &key : config_keys())
    settings.push_back({key.name, {key.initial, "default"}});
}

const Setting *Config::find(std::string_view key) const noexcept {
  for (const auto &[setting_name, setting] : settings)
    if (setting_name == key) return &setting;
  return nullptr;
}

Config load_config(const octavo_open_desc &desc) {
  return Loader(desc).load();
}

std::string read_file(const std::string &path, const char *domain) {
  struct stat status {};
  std::string problem;
  const Descriptor file = open_regular(path, &status, &problem);
  if (file.get() < 0) {
    if (const std::string near = status.st_mode == 0 ? toml_like(path) : ""; !near.empty())
      throw Failure(OCTAVO_INVALID, domain, path, ": ", problem, "; did you mean \"", near, "\"?")
          .with_fix({.question = "name the file that is there: " + near});
    constexpr const char *kMake = "octavo init --yes --output ";
    const std::string command = S_ISDIR(status.st_mode) ? kMake + shell_word(path + "/octavo.toml")
                                : S_ISREG(status.st_mode) ? "chmod u+r " + shell_word(path)
                                : status.st_mode != 0     ? "rm " + shell_word(path)
                                                          : kMake + shell_word(path);
    throw Failure(OCTAVO_INVALID, domain, path, ": ", problem).with_fix({.command = command});
  }
  // One byte more than the parser takes, which names the place that is too long.
  std::string text(std::min(static_cast<size_t>(status.st_size), kMostTomlBytes) + 1, '\0');
  text.resize(read_at(file, path, text.data(), text.size(), 0));
  return text;
}

}  // namespace octavo
