// Checks option values against what the backend itself declared, or its manifest.
#include <unistd.h>

#include "sdk/src/config/options.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/variables.h"
#include "sdk/src/config/failures.h"
#include "sdk/src/config/layer_rules.h"
#include "sdk/src/config/meaning.h"

namespace octavo {
namespace {

bool inside(const DeclaredOption &o, const TomlValue &value) {
  const auto *real = std::get_if<double>(&value);
  return (real == nullptr || std::isfinite(*real)) && is_in_bounds(o, value);
}

std::string range_of(const DeclaredOption &o) {
  if (is_value(o.low) && is_value(o.high)) return show(o.low) + " to " + show(o.high);
  if (is_value(o.low)) return "at least " + show(o.low);
  return is_value(o.high) ? "at most " + show(o.high) : "a finite number";
}

// What may be chosen, for a question.
std::string allowed(const DeclaredOption &o) {
  if (!o.choices.empty()) return any_of(o.choices);
  const bool has_range = is_value(o.low) || is_value(o.high);
  return kind_of(o.initial) + (has_range ? ", " + range_of(o) + "," : "");
}

// Of a number out of range.
std::optional<TomlValue> nearest_bound(const DeclaredOption &o, const TomlValue &value) {
  const auto bound = [&](auto number) {
    const auto *low = std::get_if<decltype(number)>(&o.low);
    return low != nullptr && number < *low ? o.low : o.high;
  };
  if (const auto *integer = std::get_if<int64_t>(&value)) return bound(*integer);
  const double real = std::get<double>(value);
  if (!std::isfinite(real)) return {};
  return bound(real);
}

// The value in the option's own type, or Failure.
TomlValue checked(const DeclaredOption &o, const std::string &full, const Setting &given) {
  TomlValue value = given.value;
  widen(o.initial, value);
  const std::string where = given.origin + ": " + full + ": expected ";
  const Fix place = {.key = full, .origin = given.origin};
  if (value.index() != o.initial.index())
    throw Failure(OCTAVO_INVALID, kConfigDomain, where, kind_of(o.initial), ", found ",
                  kind_of(value), is_value(value) ? " (" + show(value) + ")" : "")
        .with_fix(keep_meaning(place, meant(o.initial, o.choices, value), allowed(o), o.initial));
  if (!inside(o, value))
    throw Failure(OCTAVO_INVALID, kConfigDomain, where, range_of(o), ", found ", show(value))
        .with_fix(keep_meaning(place, nearest_bound(o, value), range_of(o), o.initial));
  if (const auto *text = std::get_if<std::string>(&value);
      text && !o.choices.empty() &&
      std::find(o.choices.begin(), o.choices.end(), *text) == o.choices.end()) {
    std::string near;
    const std::string words = not_a_choice(*text, o.choices, &near);
    throw Failure(OCTAVO_INVALID, kConfigDomain, where, words)
        .with_fix(keep_meaning(place, meant(o.initial, o.choices, value), allowed(o), o.initial));
  }
  return value;
}

TomlValue value_of(const DeclaredOption &o, const std::string &text, const std::string &variable) {
  const std::optional<TomlValue> value = as_type_of(o.initial, text);
  // As strict as the file: 1.0 is another type there.
  const bool is_whole = std::holds_alternative<int64_t>(o.initial);
  if (value && (!is_whole || text.find_first_not_of("-0123456789") == std::string::npos))
    return *value;
  const std::string expected = is_whole ? "an integer"
                               : std::holds_alternative<double>(o.initial)
                                   ? "a number"
                                   : "true or false (also 1, yes, on, 0, no, off)";
  throw Failure(OCTAVO_INVALID, kConfigDomain, "environment variable ", variable, ": expected ",
                expected, ", found \"", text, "\"")
      .with_fix(keep_meaning({.key = variable, .origin = variable}, {}, allowed(o), o.initial));
}

// A variable that looks like an option of this backend and is none: a typing error that would
// otherwise train with another setting than the user believes.
void refuse_unknown(const std::vector<DeclaredOption> &declared, const std::string &id) {
  const std::string prefix = variable_of(id, "");
  std::vector<std::string> known;
  for (const DeclaredOption &o : declared) known.push_back(variable_of(id, o.name));
  for (const std::string &name : variables_with(prefix)) {
    bool found = false;
    for (const std::string &variable : known) found = found || variable == name;
    if (found) continue;
    const std::string near = nearest(name, known);
    throw Failure(OCTAVO_INVALID, kConfigDomain, "environment variable ", name, ": backend ", id,
                  " has no such option",
                  near.empty() ? "; it knows " + enumerate(known) : "; did you mean " + near + "?")
        .with_fix(rename_variable(name, near));
  }
}

}  // namespace

std::vector<EffectiveOption> effective_options(const std::vector<DeclaredOption> &declared,
                                               const std::string &id,
                                               const std::map<std::string, Setting> &given,
                                               const std::string &rule) {
  const std::string prefix = (rule.empty() ? "" : rule + ".") + "fp8." + id + ".";
  Failures wrong;
  for (const auto &[key, value] : given) {
    const std::string &name = key;
    const Setting &setting = value;
    std::vector<std::string> names;
    bool known = false;
    for (const DeclaredOption &o : declared) {
      names.push_back(o.name);
      known = known || o.name == name;
    }
    if (known) continue;
    const std::string near = nearest(name, names);
    wrong.take([&] {
      throw Failure(OCTAVO_INVALID, kConfigDomain, setting.origin, ": unknown key \"", prefix, name,
                    "\"",
                    near.empty() ? "; backend " + id + " knows " + enumerate(names)
                                 : "; did you mean \"" + prefix + near + "\"?")
          .with_fix({.key = prefix + name,
                     .origin = setting.origin,
                     .rename = near.empty() ? "" : prefix + near});
    });
  }
  std::vector<EffectiveOption> effective;
  for (const DeclaredOption &o : declared) {
    const auto found = given.find(o.name);
    if (found == given.end())
      effective.push_back({o.name, o.help, {o.initial, "default"}});
    else
      wrong.take([&] {
        effective.push_back(
            {o.name, o.help, {checked(o, prefix + o.name, found->second), found->second.origin}});
      });
  }
  wrong.refuse();
  return effective;
}

std::vector<EffectiveOption> differing_options(const std::vector<DeclaredOption> &declared,
                                               const std::string &id, const LayerRule &rule,
                                               const std::vector<EffectiveOption> &session) {
  const std::map<std::string, Setting> &given = options_for(rule, id);
  std::vector<EffectiveOption> differing;
  // Both are in the order of the declarations.
  const std::vector<EffectiveOption> all = effective_options(declared, id, given, rule.key);
  for (size_t i = 0; i < session.size(); ++i)
    if (given.count(all[i].name) != 0 &&
        show(all[i].setting.value) != show(session[i].setting.value))
      differing.push_back(all[i]);
  return differing;
}

octavo_value lend_value(const TomlValue &value) {
  if (const auto *i = std::get_if<int64_t>(&value)) return value_of(*i);
  if (const auto *f = std::get_if<double>(&value)) return value_of(*f);
  if (const auto *b = std::get_if<bool>(&value)) return value_of(*b);
  if (const auto *s = std::get_if<std::string>(&value)) return value_of(std::string_view(*s));
  octavo_value list{};
  list.type = OCTAVO_VALUE_LIST;
  return list;
}

std::vector<octavo_option_value> lend_options(const std::vector<EffectiveOption> &options) {
  std::vector<octavo_option_value> lent;
  for (const EffectiveOption &o : options)
    lent.push_back({borrow(o.name), lend_value(o.setting.value)});
  return lent;
}

void LentSettings::put(std::string name, Setting setting) {
  const auto same = [&](const Entry &e) { return e.name == name; };
  auto found = std::find_if(entries_.begin(), entries_.end(), same);
  Entry &e = found == entries_.end() ? entries_.emplace_back() : *found;
  e.name = std::move(name);
  e.setting = std::move(setting);
  e.texts.clear();
  if (const auto *list = std::get_if<std::vector<std::string>>(&e.setting.value))
    for (const std::string &text : *list) e.texts.push_back(borrow(text));
  e.lent = make<octavo_setting>(OCTAVO_KIND_SETTING);
  e.lent.name = borrow(e.name);
  e.lent.value = lend_value(e.setting.value);
  e.lent.texts = e.texts.data();
  e.lent.text_count = e.texts.size();
  e.lent.origin = borrow(e.setting.origin);
}

const octavo_setting *LentSettings::at(size_t index) const {
  return index < entries_.size() ? &entries_[index].lent : nullptr;
}

const octavo_setting *LentSettings::find(std::string_view name) const {
  for (const Entry &e : entries_)
    if (e.name == name) return &e.lent;
  return nullptr;
}

std::string variable_of(const std::string &id, const std::string &option) {
  return as_variable("fp8." + id + "." + option);
}

std::string as_variable(const std::string &key) {
  std::string name = "OCTAVO_" + key;
  for (char &c : name) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
  }
  return name;
}

Fix rename_variable(const std::string &name, const std::string &near) {
  return {.key = name,
          .origin = name,
          .command = near.empty() ? "" : "export " + near + "=\"$" + name + "\" && unset " + name};
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
