// As strict as the reader of octavo.toml: a default, a bound or a choice that makes no sense would
// refuse values that the plugin takes.
#include "sdk/src/plugin/manifest_options.h"

#include <algorithm>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo {
namespace {

constexpr const char *kKeys[] = {"default", "low", "high", "choices", "help"};

bool is_table(const TomlValue &value) {
  const auto *other = std::get_if<OtherToml>(&value);
  return other != nullptr && other->kind == "table";
}

}  // namespace

template <typename... Part>
void ManifestOptions::fail_at(const TomlEntry &entry, const Part &...text) const {
  throw Failure(OCTAVO_INVALID, domain_, path_, ":", entry.line, ":", entry.column, ": ",
                dotted(entry.path), ": ", text...);
}

// What is compared and chosen must be as it is.
void ManifestOptions::check_text(const TomlEntry &entry, const std::string &text) const {
  if (plain_text(text, kMaxPluginText) != text)
    fail_at(entry, "expected at most ", kMaxPluginText,
            " bytes without control characters, found \"", plain_text(text, 64), "\"");
}

bool ManifestOptions::accept(const TomlEntry &entry) {
  stated_ = true;
  const std::vector<std::string> &path = entry.path;
  if (path.size() < 3) {
    if (!is_table(entry.value))
      fail_at(entry, "expected a table, [options.NAME], found ", kind_of(entry.value));
    if (path.size() == 1) return true;  // there are none
    fail_at(entry, "expected the key default, found nothing");
  }
  check_text(entry, path[1]);
  if (path[1].empty()) fail_at(entry, "expected the name of an option, found an empty one");
  auto &keys = keys_by_option_[path[1]];
  keys.emplace("", entry);  // any entry, for the place of the option
  if (path.size() > 3 || std::find(std::begin(kKeys), std::end(kKeys), path[2]) == std::end(kKeys))
    return false;
  keys[path[2]] = entry;
  return true;
}

std::vector<std::string> ManifestOptions::keys_like(const TomlEntry &entry) {
  std::vector<std::string> names;
  if (entry.path.size() == 3 && entry.path[0] == "options")
    for (const char *key : kKeys) names.push_back(dotted({"options", entry.path[1], key}));
  return names;
}

DeclaredOption ManifestOptions::option_of(const std::map<std::string, TomlEntry> &keys) const {
  const auto given = [&](const char *key) {
    const auto found = keys.find(key);
    return found == keys.end() ? nullptr : &found->second;
  };
  const TomlEntry &any = keys.at("");
  DeclaredOption o{any.path[1], "", {}, OtherToml{"nothing"}, OtherToml{"nothing"}, {}};
  const TomlEntry *initial = given("default");
  if (initial == nullptr) {
    TomlEntry place = any;
    place.path.resize(2);
    fail_at(place, "expected the key default, found none");
  }
  o.initial = initial->value;
  const auto *text = std::get_if<std::string>(&o.initial);
  if (!is_value(o.initial) || std::holds_alternative<std::vector<std::string>>(o.initial))
    fail_at(*initial, "expected an integer, a real number, a boolean or a text, found ",
            kind_of(o.initial));
  if (text != nullptr) check_text(*initial, *text);
  const bool number =
      std::holds_alternative<int64_t>(o.initial) || std::holds_alternative<double>(o.initial);
  for (auto [key, bound] : {std::pair("low", &o.low), std::pair("high", &o.high)}) {
    const TomlEntry *entry = given(key);
    if (entry == nullptr) continue;
    *bound = entry->value;
    widen(o.initial, *bound);
    if (!number || bound->index() != o.initial.index())
      fail_at(*entry, "expected ", number ? kind_of(o.initial) : "no bound",
              ", since the default is ", kind_of(o.initial), ", found ", kind_of(entry->value));
  }
  if (!is_in_bounds(o, o.initial))
    fail_at(*initial, "expected a value between low and high, found ", show(o.initial));
  if (const TomlEntry *entry = given("choices")) {
    const auto *choices = std::get_if<std::vector<std::string>>(&entry->value);
    if (choices == nullptr || text == nullptr)
      fail_at(*entry, "expected a list of texts, and a text as default, found ",
              kind_of(entry->value), " and ", kind_of(o.initial));
    for (const std::string &choice : *choices) check_text(*entry, choice);
    o.choices = *choices;
    if (std::find(o.choices.begin(), o.choices.end(), *text) == o.choices.end())
      fail_at(*entry, "expected the default, ", show(o.initial), ", among them, found ",
              show(o.choices));
  }
  if (const TomlEntry *entry = given("help")) {
    const auto *help = std::get_if<std::string>(&entry->value);
    if (help == nullptr) fail_at(*entry, "expected a text, found ", kind_of(entry->value));
    o.help = plain_text(*help, kMaxPluginText);
  }
  return o;
}

std::optional<std::vector<DeclaredOption>> ManifestOptions::take() const {
  if (!stated_) return std::nullopt;
  std::vector<std::pair<uint32_t, DeclaredOption>> by_line;
  for (const auto &[name, keys] : keys_by_option_) {
    uint32_t line = UINT32_MAX;
    for (const auto &[key, entry] : keys) line = std::min(line, entry.line);
    by_line.emplace_back(line, option_of(keys));
  }
  std::stable_sort(by_line.begin(), by_line.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<DeclaredOption> options;
  for (auto &[line, option] : by_line) options.push_back(std::move(option));
  return options;
}

}  // namespace octavo
