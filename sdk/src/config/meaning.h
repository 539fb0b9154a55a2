// What to do about a value that a key cannot have: the edit that keeps what the user meant by it,
// or else a question. A default never takes the place of something that was stated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/config/toml.h"

namespace octavo {

// `text` as a value of the type of `like`: an integer (also "5.0"), a number, true or false in the
// words that Accelerate and most launchers take, a text. None: it means nothing of that type.
std::optional<TomlValue> as_type_of(const TomlValue &like, const std::string &text);

// The value that `given` means in a key with values as `initial` and these choices, if there are
// any: 5.0 means 5, "true" means true, 3 means "O3" where that is the only choice that ends so.
std::optional<TomlValue> meant(const TomlValue &initial, const std::vector<std::string> &choices,
                               const TomlValue &given);

// "a", "b" or "c", for a question.
std::string any_of(const std::vector<std::string> &choices);

// `fix` with the value that was meant, or with a question: `expected` says what may be chosen.
Fix keep_meaning(Fix fix, const std::optional<TomlValue> &meant, const std::string &expected,
                 const TomlValue &initial);

}  // namespace octavo
