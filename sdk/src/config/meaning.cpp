// A value is read as the text that the user wrote, in each type that it could have.
#include "sdk/src/config/meaning.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "sdk/src/base/text.h"

namespace octavo {
namespace {

template <typename Number>
std::optional<Number> number_of(const std::string &text) {
  Number number{};
  const char *end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return {};
  return number;
}

std::optional<TomlValue> integer_of(const std::string &text) {
  if (const auto whole = number_of<int64_t>(text)) return *whole;
  constexpr double kExact = 9007199254740992;  // 2^53: below it every integer is a double
  const auto real = number_of<double>(text);
  if (!real || std::abs(*real) > kExact || *real != std::trunc(*real)) return {};
  return static_cast<int64_t>(*real);
}

std::string lower(std::string text) {
  for (char &c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::optional<TomlValue> flag_of(const std::string &text) {
  for (const char *yes : {"1", "true", "yes", "on", "y", "t"})
    if (lower(text) == yes) return true;
  for (const char *no : {"0", "false", "no", "off", "n", "f"})
    if (lower(text) == no) return false;
  return {};
}

std::optional<TomlValue> choice_of(const std::vector<std::string> &choices,
                                   const std::string &text) {
  if (text.empty()) return {};
  std::vector<std::string> found;
  for (const std::string &choice : choices) {
    if (lower(choice) == lower(text)) return choice;
    if (lower(choice).ends_with(lower(text))) found.push_back(choice);
  }
  if (found.size() == 1) return found[0];
  if (!found.empty()) return {};
  const std::string near = nearest(text, choices);
  if (near.empty()) return {};
  return near;
}

}  // namespace

std::optional<TomlValue> as_type_of(const TomlValue &like, const std::string &text) {
  if (std::holds_alternative<int64_t>(like)) return integer_of(text);
  if (std::holds_alternative<bool>(like)) return flag_of(text);
  if (std::holds_alternative<std::string>(like)) return text;
  if (!std::holds_alternative<double>(like)) return {};
  const auto real = number_of<double>(text);
  if (!real) return {};
  return *real;
}

std::optional<TomlValue> meant(const TomlValue &initial, const std::vector<std::string> &choices,
                               const TomlValue &given) {
  if (std::holds_alternative<OtherToml>(given) ||
      std::holds_alternative<std::vector<std::string>>(given))
    return {};
  const auto *text = std::get_if<std::string>(&given);
  const std::string words = text != nullptr ? *text : show(given);
  if (!std::holds_alternative<std::string>(initial)) return as_type_of(initial, words);
  if (!choices.empty()) return choice_of(choices, words);
  if (std::holds_alternative<bool>(given)) return {};  // no name is called so
  return words;
}

std::string any_of(const std::vector<std::string> &choices) {
  std::vector<std::string> quoted;
  for (const std::string &choice : choices) quoted.push_back(show(choice));
  return enumerate(quoted, "or");
}

Fix keep_meaning(Fix fix, const std::optional<TomlValue> &meant, const std::string &expected,
                 const TomlValue &initial) {
  if (meant)
    fix.value = show(*meant);
  else
    fix.question =
        concat("choose ", expected, " for ", fix.key, ", or remove it: then it is ", show(initial));
  return fix;
}

}  // namespace octavo
