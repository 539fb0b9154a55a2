// octavo/hpp/host/settings.hpp: what to open, and the queries that need no run.
#ifndef OCTAVO_HPP_HOST_SETTINGS_HPP
#define OCTAVO_HPP_HOST_SETTINGS_HPP

#include <charconv>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "octavo/hpp/host/host.hpp"
#include "octavo/octavo.h"

namespace octavo {
inline namespace hpp {

// The arguments of octavo_open. Owns all texts, which octavo_open_desc borrows.
class Settings {
 public:
  // Sets the configuration file. With text(), it appears in messages only.
  Settings &path(std::string p) {
    path_ = std::move(p);
    return *this;
  }
  Settings &text(std::string toml) {
    text_ = std::move(toml);
    has_text_ = true;
    return *this;
  }
  // Overrides a dotted key: set("fp8.te.recipe", "delayed"). Only a bool sets a BOOL; an integer
  // remains an INT.
  template <typename T>
  Settings &set(std::string key, const T &value) {
    if constexpr (std::is_same_v<T, bool>)
      overrides_.emplace_back(std::move(key), value);
    else if constexpr (std::is_integral_v<T>)
      overrides_.emplace_back(std::move(key), static_cast<int64_t>(value));
    else if constexpr (std::is_floating_point_v<T>)
      overrides_.emplace_back(std::move(key), static_cast<double>(value));
    else
      overrides_.emplace_back(std::move(key), std::string(value));
    return *this;
  }
  // A value of a command line, as the type that TOML would give it: true, 8, 0.5, "a text". Other
  // words are texts, too, and numbers that do not fit.
  Settings &parse(std::string key, const std::string &value) {
    const auto is = [&value](auto *number) {
      const char *end = value.data() + value.size();
      const auto parsed = std::from_chars(value.data(), end, *number);
      return parsed.ec == std::errc() && parsed.ptr == end;
    };
    int64_t whole = 0;
    double real = 0;
    if (value == "true" || value == "false") return set(std::move(key), value == "true");
    if (is(&whole)) return set(std::move(key), whole);
    if (is(&real)) return set(std::move(key), real);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      return set(std::move(key), value.substr(1, value.size() - 2));
    return set(std::move(key), value);
  }
  Settings &plugin_dir(std::string directory) {
    plugin_dirs_.push_back(std::move(directory));
    return *this;
  }
  Settings &device(octavo_device d) {
    device_ = d;
    return *this;
  }

  // Calls body(const octavo_open_desc &). The description is valid during that call only.
  template <typename Body>
  auto with_desc(const octavo_host *host, Body body) const {
    std::vector<octavo_option_value> overrides;
    for (const auto &[key, value] : overrides_)
      overrides.push_back(
          {borrow(key), std::visit([](const auto &v) { return value_of(v); }, value)});
    std::vector<octavo_str> directories;
    for (const std::string &d : plugin_dirs_) directories.push_back(borrow(d));
    auto desc = make<octavo_open_desc>(OCTAVO_KIND_OPEN_DESC);
    if (!path_.empty()) desc.config_path = borrow(path_);
    if (has_text_) desc.config_text = borrow(text_);
    desc.overrides = overrides.data();
    desc.override_count = overrides.size();
    desc.plugin_dirs = directories.data();
    desc.plugin_dir_count = directories.size();
    desc.device = device_;
    desc.host = host;
    return body(desc);
  }

 private:
  using Value = std::variant<bool, int64_t, double, std::string>;

  std::string path_, text_;
  bool has_text_ = false;
  std::vector<std::pair<std::string, Value>> overrides_;
  std::vector<std::string> plugin_dirs_;
  octavo_device device_{};
};

// Collects the lines that a function of liboctavo passes to an octavo_line.
class Lines {
 public:
  static void line(void *ctx, octavo_str s) noexcept {
    auto *self = static_cast<Lines *>(ctx);
    try {
      self->text_.append(s.data, s.size).append("\n");
    } catch (...) {
      self->complete_ = false;
    }
  }
  std::string take() {
    if (!complete_) throw std::bad_alloc();
    return std::move(text_);
  }

 private:
  std::string text_;
  bool complete_ = true;
};

// The text of a query and its status. A query for a configuration that cannot run has a text, too.
struct Answer {
  octavo_status status = OCTAVO_OK;
  std::string text;
  std::vector<Diagnostic> diagnostics;
};

using Question = octavo_status (*)(const octavo_open_desc *, octavo_str, octavo_line, void *);
inline Answer ask(Question question, const Settings &settings, std::string_view format) {
  Host host;
  Lines lines;
  Answer answer;
  answer.status = settings.with_desc(host.get(), [&](const octavo_open_desc &desc) {
    return question(&desc, borrow(format), Lines::line, &lines);
  });
  answer.text = lines.take();
  answer.diagnostics = host.take();
  return answer;
}
// Formats: "text", "tree" or "json".
inline Answer explain(const Settings &s, std::string_view format = "text") {
  return ask(octavo_explain, s, format);
}
inline Answer list(const Settings &s, std::string_view format = "text") {
  return ask(octavo_list, s, format);
}
inline Answer probe(const Settings &s, std::string_view format = "text") {
  return ask(octavo_probe, s, format);
}
inline Answer check_config(const Settings &s, std::string_view format = "text") {
  return ask(octavo_check_config, s, format);
}
// A value in effect, as text or as a list of texts, and where it was set: "octavo.toml:3:1".
struct ConfigValue {
  std::string text;
  std::vector<std::string> list;
  std::string origin;
};
// The effective configuration by dotted key. Empty if the status is neither OCTAVO_OK nor
// OCTAVO_UNSUPPORTED, which means that a backend is missing.
struct Configuration {
  octavo_status status = OCTAVO_OK;
  std::map<std::string, ConfigValue> values;
  std::vector<Diagnostic> diagnostics;
};
inline Configuration configuration(const Settings &settings) {
  Host host;
  Configuration found;
  bool complete = true;
  std::pair<Configuration *, bool *> to(&found, &complete);
  const octavo_take_setting take = [](void *ctx, const octavo_setting *s) noexcept {
    const auto &[all, is_complete] = *static_cast<decltype(to) *>(ctx);
    try {
      ConfigValue &v = all->values[text(s->name)] = {text(s->value), {}, text(s->origin)};
      for (uint64_t i = 0; i < s->text_count; ++i) v.list.push_back(text(s->texts[i]));
    } catch (...) {
      *is_complete = false;
    }
  };
  found.status = settings.with_desc(
      host.get(), [&](const octavo_open_desc &d) { return octavo_settings(&d, take, &to); });
  if (!complete) throw std::bad_alloc();
  found.diagnostics = host.take();
  return found;
}
inline std::string version() {
  return text(octavo_version());
}

}  // namespace hpp
}  // namespace octavo

#endif
