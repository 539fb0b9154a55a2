// What a backend declares, as values; the same as TOML, and how two such lists differ.
#include "sdk/src/config/declared.h"

#include <charconv>
#include <new>

#include "octavo/hpp/text.hpp"
#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo {
namespace {

// Choices of one option.
constexpr uint64_t kMaxChoices = 4096;

// One option that a plugin declares.
octavo_status take_option(std::vector<DeclaredOption> &declared, const octavo_option *o) {
  if (o == nullptr || !OCTAVO_HAS(o, octavo_option, choice_count)) return OCTAVO_INVALID;
  if (o->choices == nullptr && o->choice_count != 0) return OCTAVO_INVALID;
  const std::optional<std::string> name = take_name(o->name);
  if (!name || name->empty() || o->choice_count > kMaxChoices) return OCTAVO_INVALID;
  DeclaredOption d{
      *name, take_text(o->help), from_abi(o->initial), from_abi(o->low), from_abi(o->high), {}};
  if (!is_value(d.initial)) return OCTAVO_INVALID;
  for (uint64_t i = 0; i < o->choice_count; ++i) {
    const std::optional<std::string> choice = take_name(o->choices[i]);
    if (!choice) return OCTAVO_INVALID;
    d.choices.push_back(*choice);
  }
  widen(d.initial, d.low);
  widen(d.initial, d.high);
  declared.push_back(std::move(d));
  return OCTAVO_OK;
}

// The value as TOML, from which the same bits are read again.
std::string exact(const TomlValue &value) {
  const auto *real = std::get_if<double>(&value);
  if (real == nullptr) return show(value);
  char digits[32];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, *real).ptr);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// The keys of one option in a manifest, with their values as TOML.
std::vector<std::pair<const char *, std::string>> keys_of(const DeclaredOption &o) {
  std::vector<std::pair<const char *, std::string>> keys = {{"default", exact(o.initial)}};
  if (is_value(o.low)) keys.emplace_back("low", exact(o.low));
  if (is_value(o.high)) keys.emplace_back("high", exact(o.high));
  if (!o.choices.empty()) keys.emplace_back("choices", show(o.choices));
  if (!o.help.empty()) keys.emplace_back("help", show(o.help));
  return keys;
}

const DeclaredOption *find(const std::vector<DeclaredOption> &all, const std::string &name) {
  for (const DeclaredOption &o : all)
    if (o.name == name) return &o;
  return nullptr;
}

}  // namespace

TomlValue from_abi(const octavo_value &v) {
  switch (v.type) {
    case OCTAVO_VALUE_INT: return v.integer;
    case OCTAVO_VALUE_REAL: return v.real;
    case OCTAVO_VALUE_BOOL: return v.integer != 0;
    case OCTAVO_VALUE_TEXT:
      if (const auto text = take_name(v.text)) return *text;
      return OtherToml{"nothing"};
    default: return OtherToml{"nothing"};
  }
}

std::vector<DeclaredOption> declared_options(const octavo_backend &backend, const std::string &id) {
  std::vector<DeclaredOption> declared;
  auto sink = make<octavo_option_sink>(OCTAVO_KIND_OPTION_SINK);
  sink.ctx = &declared;
  sink.option = [](void *ctx, const octavo_option *o) -> octavo_status {
    try {
      return take_option(*static_cast<std::vector<DeclaredOption> *>(ctx), o);
    } catch (const std::bad_alloc &) {
      return OCTAVO_NO_RESOURCE;  // nothing leaves into the plugin
    }
  };
  std::string thrown;
  const octavo_status status = call_plugin(&thrown, [&] { return backend.list_options(&sink); });
  pass_resource(status, "backend " + id + ": list_options", Stage::kPlugin);
  if (status != OCTAVO_OK)
    throw Failure(OCTAVO_INTERNAL, kOptionsDomain, "backend ", id,
                  ": list_options failed with status ", status, thrown,
                  "; this is a defect of the plugin");
  return declared;
}

std::string options_toml(const std::vector<DeclaredOption> &declared) {
  std::string text;
  for (const DeclaredOption &o : declared) {
    const bool bare = o.name.find_first_not_of(
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789_-") == std::string::npos;
    text += "\n[options." + (bare ? o.name : show(o.name)) + "]\n";
    for (const auto &[key, value] : keys_of(o)) text += concat(key, " = ", value, "\n");
  }
  return text.empty() ? "\n[options]\n" : text;
}

std::string first_difference(const std::vector<DeclaredOption> &stated,
                             const std::vector<DeclaredOption> &own) {
  for (const DeclaredOption &o : own) {
    const DeclaredOption *other = find(stated, o.name);
    if (other == nullptr) return "expected the option " + o.name + ", found none";
    const auto expected = keys_of(o);
    const auto found = keys_of(*other);
    for (const char *key : {"default", "low", "high", "choices", "help"}) {
      const auto value_in = [&](const auto &keys) {
        for (const auto &[name, value] : keys)
          if (name == std::string_view(key)) return value;
        return std::string("nothing");
      };
      if (value_in(expected) != value_in(found))
        return concat("option ", o.name, ": expected ", key, " = ", value_in(expected), ", found ",
                      value_in(found));
    }
  }
  for (const DeclaredOption &o : stated)
    if (find(own, o.name) == nullptr)
      return "expected no option " + o.name + ", which the plugin does not have";
  return {};
}

}  // namespace octavo
