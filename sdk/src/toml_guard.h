// What is refused before a TOML parser sees the text: sizes, depths and characters with which
// parsers have gone wrong.
#pragma once

#include <string>
#include <string_view>

namespace octavo {

// The text without one byte order mark at its start. Throws Failure(OCTAVO_INVALID, domain,
// "name:line:column: ...") for more than 1 MiB, a NUL or another control character, a character
// that is not ASCII outside of texts and comments, more than 256 dots in a line or 16 open brackets
// outside of them, a bracket that no value or name follows, a quote inside a value without quotes,
// and a character that is not ASCII behind a backslash, with or without white space between.
std::string_view guard_toml(std::string_view text, const std::string &name, const char *domain);

}  // namespace octavo
