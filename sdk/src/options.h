// Options of a backend: declared by the backend, checked here, handed to its session complete.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "config.h"
#include "octavo/backend.h"

namespace octavo {

struct DeclaredOption {
  std::string name;
  std::string help;
  TomlValue initial;
  TomlValue low;  // OtherToml: unbounded
  TomlValue high;
  std::vector<std::string> choices;
};

struct EffectiveOption {
  std::string name;
  std::string help;
  Setting setting;
};

// What the backend declares. Throws Failure(OCTAVO_INTERNAL) when a declaration makes no sense.
std::vector<DeclaredOption> declared_options(const octavo_backend &backend, const std::string &id);

// Every declared option with its value. Throws Failure(OCTAVO_INVALID, "octavo.config", ...) for an
// unknown option (nearest name), a wrong type, a value out of range or no choice.
std::vector<EffectiveOption> effective_options(const std::vector<DeclaredOption> &declared,
                                               const std::string &id,
                                               const std::map<std::string, Setting> &given);

// The array that crosses the border; borrows the texts of `options`.
std::vector<octavo_option_value> lend_options(const std::vector<EffectiveOption> &options);

}  // namespace octavo
