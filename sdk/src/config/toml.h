// TOML as a flat list of entries with positions. TOML++ itself stays inside toml.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace octavo {

// A value of the subset that Octavo's files use. Anything else (dates, mixed arrays) is Other and
// carries its kind for the message.
struct OtherToml {
  std::string kind;
};
using TomlValue =
    std::variant<int64_t, double, bool, std::string, std::vector<std::string>, OtherToml>;

struct TomlEntry {
  std::vector<std::string>
      path;  // elements of an array of tables are numbered: plugin, 0, manifest
  TomlValue value;
  uint32_t line = 0;    // of the key, counted from 1
  uint32_t column = 0;  // counted from 1
  // The place of the value: from its first character to the one after its last.
  uint32_t value_line = 0;
  uint32_t value_column = 0;
  uint32_t end_line = 0;
  uint32_t end_column = 0;
};

// Every value of the document, in no particular order; a table without values gives one entry of
// kind "table". Throws Failure(OCTAVO_INVALID, domain, "name:line:column: ...") on malformed text,
// and on text that guard_toml refuses.
std::vector<TomlEntry> parse_toml(std::string_view text, const std::string &name,
                                  const char *domain);

// "an integer", "text", "a list of texts", ...
std::string kind_of(const TomlValue &value);

// The value as TOML, for messages and reports.
std::string show(const TomlValue &value);

// The path joined with dots; a part that holds a dot itself is in quotes, as in TOML.
std::string dotted(const std::vector<std::string> &path);

constexpr size_t kMostTomlBytes = size_t{1} << 20;

// What is refused before a TOML parser sees the text: sizes, depths and characters with which
// parsers have gone wrong. Gives the text without one byte order mark at its start. Throws
// Failure(OCTAVO_INVALID, domain, "name:line:column: ...") for more than 1 MiB, a NUL or another
// control character, a character that is not ASCII outside of texts and comments, more than 256
// dots in a line or 16 open brackets outside of them, a bracket that no value or name follows, a
// quote inside a value without quotes, and a character that is not ASCII after a backslash, with or
// without white space between.
std::string_view guard_toml(std::string_view text, const std::string &name, const char *domain);

}  // namespace octavo
