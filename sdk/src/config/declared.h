// The options that a backend declares: by its own table, which counts, or by its manifest, which is
// read without running it.
#pragma once

#include <string>
#include <vector>

#include "octavo/backend.h"
#include "sdk/src/config/toml.h"

namespace octavo {

// Of messages about what plugins and manifests declare; sdk/verify looks for it.
inline constexpr const char *kOptionsDomain = "octavo.options";

struct DeclaredOption {
  std::string name;
  std::string help;
  TomlValue initial;
  TomlValue low;  // OtherToml: unbounded
  TomlValue high;
  std::vector<std::string> choices;
};

inline bool is_value(const TomlValue &v) {
  return !std::holds_alternative<OtherToml>(v);
}

// OtherToml for no type of an option.
TomlValue from_abi(const octavo_value &v);

// An integer where a real number is expected is one.
inline void widen(const TomlValue &like, TomlValue &value) {
  if (std::holds_alternative<double>(like) && std::holds_alternative<int64_t>(value))
    value = static_cast<double>(std::get<int64_t>(value));
}

// Whether a number is within the bounds of its own type; other values have none, and NaN passes.
inline bool is_in_bounds(const DeclaredOption &o, const TomlValue &value) {
  const auto check = [&](auto number) {
    using T = decltype(number);
    const T *low = std::get_if<T>(&o.low);
    const T *high = std::get_if<T>(&o.high);
    return !(low != nullptr && number < *low) && !(high != nullptr && number > *high);
  };
  if (const auto *i = std::get_if<int64_t>(&value)) return check(*i);
  if (const auto *f = std::get_if<double>(&value)) return check(*f);
  return true;
}

// What the backend declares. Throws Failure(OCTAVO_INTERNAL) when a declaration makes no sense.
std::vector<DeclaredOption> declared_options(const octavo_backend &backend, const std::string &id);

// As [options] of a manifest, which `octavo plugin manifest` prints; a manifest that holds it
// states all options, so that none is [options] alone.
std::string options_toml(const std::vector<DeclaredOption> &declared);

// The first way in which a manifest states other options than the plugin's own, with the option's
// name: "option margin: expected default = 0, found 1"; empty: none. The order is of no account.
std::string first_difference(const std::vector<DeclaredOption> &stated,
                             const std::vector<DeclaredOption> &own);

}  // namespace octavo
