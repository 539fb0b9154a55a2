// The core keys of the configuration: names, initial values, types and choices.
#pragma once

#include <string>
#include <vector>

#include "toml.h"

namespace octavo {

struct ConfigKey {
  const char *name;
  TomlValue initial;
  std::vector<std::string> choices;  // of texts and of the elements of lists; empty: any
};

// In the order of reports.
const std::vector<ConfigKey> &config_keys();

// Whether core keys begin with `name` and a dot.
bool is_key_table(const std::string &name);

// The value of a core key as it is kept; one text is a list of one where the key is a list. Throws
// Failure(OCTAVO_INVALID) for one of another type or none of the choices. `where` opens the
// message.
TomlValue checked_value(const std::string &name, TomlValue value, const std::string &origin,
                        const std::string &where);

// Throws Failure(OCTAVO_INVALID), which names the core key that is nearest.
[[noreturn]] void refuse_unknown_key(const std::string &name, const std::string &origin,
                                     const std::string &where);

}  // namespace octavo
