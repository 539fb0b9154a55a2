// Checks option values against what the backend itself declared.
#include "options.h"

#include <cmath>

#include "failure.h"
#include "text.h"
#include "wall.h"

namespace octavo {
namespace {

constexpr const char *kDomain = "octavo.config";

TomlValue from_abi(const octavo_value &v) {
  switch (v.type) {
    case OCTAVO_VALUE_INT: return v.integer;
    case OCTAVO_VALUE_REAL: return v.real;
    case OCTAVO_VALUE_BOOL: return v.integer != 0;
    case OCTAVO_VALUE_TEXT: return std::string(view(v.text));
    default: return OtherToml{"nothing"};
  }
}

bool present(const TomlValue &v) {
  return !std::holds_alternative<OtherToml>(v);
}

// An integer where a real number is expected is one.
void widen(const TomlValue &like, TomlValue &value) {
  if (std::holds_alternative<double>(like) && std::holds_alternative<int64_t>(value))
    value = static_cast<double>(std::get<int64_t>(value));
}

bool inside(const DeclaredOption &o, const TomlValue &value) {
  auto check = [&](auto number) {
    using T = decltype(number);
    const T *low = std::get_if<T>(&o.low);
    const T *high = std::get_if<T>(&o.high);
    return (low == nullptr || number >= *low) && (high == nullptr || number <= *high);
  };
  if (const auto *i = std::get_if<int64_t>(&value)) return check(*i);
  if (const auto *f = std::get_if<double>(&value)) return std::isfinite(*f) && check(*f);
  return true;
}

std::string range_of(const DeclaredOption &o) {
  if (present(o.low) && present(o.high)) return show(o.low) + " to " + show(o.high);
  if (present(o.low)) return "at least " + show(o.low);
  return present(o.high) ? "at most " + show(o.high) : "a finite number";
}

// The value in the option's own type, or Failure.
TomlValue checked(const DeclaredOption &o, const std::string &full, const Setting &given) {
  TomlValue value = given.value;
  widen(o.initial, value);
  const std::string where = given.origin + ": " + full + ": expected ";
  if (value.index() != o.initial.index())
    throw Failure(OCTAVO_INVALID, kDomain,
                  where + kind_of(o.initial) + ", found " + kind_of(value) +
                      (present(value) ? " (" + show(value) + ")" : ""))
        .mended_by({.key = full, .origin = given.origin, .value = show(o.initial)});
  if (!inside(o, value))
    throw Failure(OCTAVO_INVALID, kDomain, where + range_of(o) + ", found " + show(value))
        .mended_by({.key = full, .origin = given.origin, .value = show(o.initial)});
  if (const auto *text = std::get_if<std::string>(&value); text && !o.choices.empty()) {
    std::vector<std::string> quoted;
    for (const std::string &choice : o.choices) {
      if (choice == *text) return value;
      quoted.push_back('"' + choice + '"');
    }
    const std::string near = nearest(*text, o.choices);
    throw Failure(OCTAVO_INVALID, kDomain,
                  where + enumerate(quoted, "or") + ", found \"" + *text + "\"" +
                      (near.empty() ? "" : "; did you mean \"" + near + "\"?"))
        .mended_by({.key = full,
                    .origin = given.origin,
                    .value = show(near.empty() ? o.initial : TomlValue(near))});
  }
  return value;
}

}  // namespace

std::vector<DeclaredOption> declared_options(const octavo_backend &backend, const std::string &id) {
  std::vector<DeclaredOption> declared;
  octavo_option_sink sink{};
  sink.size = sizeof(sink);
  sink.kind = OCTAVO_KIND_OPTION_SINK;
  sink.ctx = &declared;
  sink.option = [](void *ctx, const octavo_option *o) -> octavo_status {
    if (o == nullptr || !OCTAVO_HAS(o, octavo_option, choice_count)) return OCTAVO_INVALID;
    if (o->choices == nullptr && o->choice_count != 0) return OCTAVO_INVALID;
    DeclaredOption d{std::string(view(o->name)), std::string(view(o->help)), from_abi(o->initial),
                     from_abi(o->low),           from_abi(o->high),          {}};
    for (uint64_t i = 0; i < o->choice_count; ++i) d.choices.emplace_back(view(o->choices[i]));
    if (d.name.empty() || !present(d.initial)) return OCTAVO_INVALID;
    widen(d.initial, d.low);
    widen(d.initial, d.high);
    static_cast<std::vector<DeclaredOption> *>(ctx)->push_back(std::move(d));
    return OCTAVO_OK;
  };
  std::string thrown;
  const octavo_status status = call_plugin(&thrown, [&] { return backend.list_options(&sink); });
  if (status != OCTAVO_OK)
    throw Failure(OCTAVO_INTERNAL, "octavo.options",
                  "backend " + id + ": list_options failed with status " + std::to_string(status) +
                      thrown + "; this is a defect of the plugin");
  return declared;
}

std::vector<EffectiveOption> effective_options(const std::vector<DeclaredOption> &declared,
                                               const std::string &id,
                                               const std::map<std::string, Setting> &given) {
  const std::string prefix = "fp8." + id + ".";
  for (const auto &[name, setting] : given) {
    std::vector<std::string> names;
    bool known = false;
    for (const DeclaredOption &o : declared) {
      names.push_back(o.name);
      known = known || o.name == name;
    }
    if (known) continue;
    const std::string near = nearest(name, names);
    throw Failure(OCTAVO_INVALID, kDomain,
                  setting.origin + ": unknown key \"" + prefix + name + "\"" +
                      (near.empty() ? "; backend " + id + " knows " + enumerate(names)
                                    : "; did you mean \"" + prefix + near + "\"?"))
        .mended_by({.key = prefix + name,
                    .origin = setting.origin,
                    .rename = near.empty() ? "" : prefix + near});
  }
  std::vector<EffectiveOption> effective;
  for (const DeclaredOption &o : declared) {
    const auto found = given.find(o.name);
    if (found == given.end())
      effective.push_back({o.name, o.help, {o.initial, "default"}});
    else
      effective.push_back(
          {o.name, o.help, {checked(o, prefix + o.name, found->second), found->second.origin}});
  }
  return effective;
}

std::vector<octavo_option_value> lend_options(const std::vector<EffectiveOption> &options) {
  std::vector<octavo_option_value> lent;
  for (const EffectiveOption &o : options) {
    octavo_option_value v{};
    v.name = str(o.name);
    const TomlValue &value = o.setting.value;
    if (const auto *i = std::get_if<int64_t>(&value)) {
      v.value.type = OCTAVO_VALUE_INT;
      v.value.integer = *i;
    } else if (const auto *f = std::get_if<double>(&value)) {
      v.value.type = OCTAVO_VALUE_REAL;
      v.value.real = *f;
    } else if (const auto *b = std::get_if<bool>(&value)) {
      v.value.type = OCTAVO_VALUE_BOOL;
      v.value.integer = *b ? 1 : 0;
    } else {
      v.value.type = OCTAVO_VALUE_TEXT;
      v.value.text = str(std::get<std::string>(value));
    }
    lent.push_back(v);
  }
  return lent;
}

}  // namespace octavo
