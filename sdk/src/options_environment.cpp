// Reads variables as the types that the backend declared.
#include "options_environment.h"

#include <unistd.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "failure.h"
#include "text.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.config";

template <typename Number>
bool parse(const std::string &text, Number *number) {
  const char *end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *number);
  return result.ec == std::errc() && result.ptr == end;
}

// The words that Accelerate and most launchers take.
bool parse(std::string text, bool *value) {
  for (char &c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char *yes : {"1", "true", "yes", "on", "y", "t"})
    if (text == yes) return *value = true, true;
  for (const char *no : {"0", "false", "no", "off", "n", "f"})
    if (text == no) return *value = false, true;
  return false;
}

template <typename T>
TomlValue typed(const std::string &text, const std::string &variable, const char *expected) {
  T value{};
  if (!parse(text, &value))
    throw Failure(
        OCTAVO_INVALID, kDomain,
        "environment variable " + variable + ": expected " + expected + ", found \"" + text + "\"")
        .mended_by({.key = variable, .origin = variable});
  return value;
}

TomlValue value_of(const DeclaredOption &o, const std::string &text, const std::string &variable) {
  if (std::holds_alternative<int64_t>(o.initial))
    return typed<int64_t>(text, variable, "an integer");
  if (std::holds_alternative<double>(o.initial)) return typed<double>(text, variable, "a number");
  if (std::holds_alternative<bool>(o.initial))
    return typed<bool>(text, variable, "true or false (also 1, yes, on, 0, no, off)");
  return text;
}

// A variable that looks like an option of this backend and is none: a typing error that would
// otherwise train with another setting than the user believes.
void refuse_unknown(const std::vector<DeclaredOption> &declared, const std::string &id) {
  const std::string prefix = variable_of(id, "");
  std::vector<std::string> known;
  for (const DeclaredOption &o : declared) known.push_back(variable_of(id, o.name));
  for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string name(line.substr(0, line.find('=')));
    if (!name.starts_with(prefix)) continue;
    bool found = false;
    for (const std::string &variable : known) found = found || variable == name;
    if (found) continue;
    const std::string near = nearest(name, known);
    throw Failure(
        OCTAVO_INVALID, kDomain,
        "environment variable " + name + ": backend " + id + " has no such option" +
            (near.empty() ? "; it knows " + enumerate(known) : "; did you mean " + near + "?"))
        .mended_by({.key = name,
                    .origin = name,
                    .command = near.empty()
                                   ? ""
                                   : "export " + near + "=\"$" + name + "\" && unset " + name});
  }
}

}  // namespace

std::string variable_of(const std::string &id, const std::string &option) {
  std::string name = "OCTAVO_FP8_" + id + "_" + option;
  for (char &c : name) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return name;
}

std::map<std::string, Setting> with_environment(const std::vector<DeclaredOption> &declared,
                                                const std::string &id,
                                                std::map<std::string, Setting> given) {
  refuse_unknown(declared, id);
  for (const DeclaredOption &o : declared) {
    const std::string variable = variable_of(id, o.name);
    const char *text = std::getenv(variable.c_str());
    if (text == nullptr || *text == '\0') continue;
    const auto found = given.find(o.name);
    if (found != given.end() && found->second.origin == kOverride) continue;
    given[o.name] = {value_of(o, text, variable), variable};
  }
  return given;
}

}  // namespace octavo
