// The configuration: an octavo.toml, or its text, and settings that rank above it.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "octavo/torch/error.h"

namespace octavo::torch {

using Value = std::variant<bool, int64_t, double, std::string>;

struct Config {
  Config() = default;
  Config(std::string file) : path(std::move(file)) {}
  Config(const char *file) : path(file) {}
  // From the text of an octavo.toml.
  static Config from_text(std::string toml) {
    Config config;
    config.text = std::move(toml);
    return config;
  }
  // Adds a setting: {"fp8.te.recipe", "block"}. Returns this object, so that calls can follow.
  Config &set(std::string key, Value value) {
    overrides.emplace_back(std::move(key), std::move(value));
    return *this;
  }
  Config &set(std::string key, const char *value) {
    return set(std::move(key), std::string(value));
  }
  // A number as itself: the literal 0 would be a pointer to text otherwise.
  template <class T>
  requires std::is_arithmetic_v<T> Config &set(std::string key, T value) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return set(std::move(key), Value(static_cast<int64_t>(value)));
    } else {
      return set(std::move(key), Value(value));
    }
  }

  std::string path;  // empty, and no text: only defaults and settings
  std::string text;
  std::vector<std::pair<std::string, Value>> overrides;  // dotted keys, see docs/config.md
  std::vector<std::string> plugin_dirs;                  // searched after the usual places
};

// The backend that would run and why, without a model. `format`: "text", "tree" or "json". Throws
// Error when
// nothing can run; its diagnostics list every candidate.
OCTAVO_TORCH_API std::string explain(const Config &config, const std::string &format = "text");

}  // namespace octavo::torch
