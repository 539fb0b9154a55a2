// Environment variables for the time of a test; the outer values come back at the end.
//
// Not for tests with threads of their own: setenv and getenv race.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace octavo::test {

// Starts from an environment in which nothing influences liboctavo: no OCTAVO_ variable that
// chooses something, and no home or data directory that could hold plugins.
class Environment {
 public:
  Environment() {
    for (const char *name : {"OCTAVO_MIXED_PRECISION", "OCTAVO_BACKEND", "OCTAVO_PLUGIN_PATH",
                             "XDG_DATA_HOME", "HOME", "NO_COLOR"})
      unset(name);
  }
  ~Environment() {
    for (const auto &[name, value] : outer_) {
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
    }
  }
  Environment(const Environment &) = delete;
  Environment &operator=(const Environment &) = delete;

  void set(const std::string &name, const std::string &value) {
    keep(name);
    setenv(name.c_str(), value.c_str(), 1);
  }
  void unset(const std::string &name) {
    keep(name);
    unsetenv(name.c_str());
  }

 private:
  void keep(const std::string &name) {
    if (outer_.count(name) != 0) return;
    const char *value = std::getenv(name.c_str());
    outer_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  std::map<std::string, std::optional<std::string>> outer_;
};

}  // namespace octavo::test
