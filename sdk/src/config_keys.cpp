// The table of core keys, and what is said about a key or a value that is not in it.
#include "config_keys.h"

#include "config.h"
#include "failure.h"
#include "requirements.h"
#include "text.h"

namespace octavo {
namespace {

[[noreturn]] void fail(const std::string &where, const std::string &text, Mend mend) {
  throw Failure(OCTAVO_INVALID, "octavo.config", where + ": " + text).mended_by(std::move(mend));
}

std::string quoted_choices(const std::vector<std::string> &choices) {
  std::vector<std::string> quoted;
  for (const std::string &choice : choices) quoted.push_back('"' + choice + '"');
  return enumerate(quoted, "or");
}

// `value` is the whole value, of which `text` is one element or all.
void check_choice(const ConfigKey &key, const std::string &text, const TomlValue &value,
                  const std::string &origin, const std::string &where) {
  if (key.choices.empty()) return;
  for (const std::string &choice : key.choices)
    if (text == choice) return;
  const std::string near = nearest(text, key.choices);
  TomlValue better = near.empty() ? key.initial : TomlValue(near);
  if (const auto *list = std::get_if<std::vector<std::string>>(&value)) {
    std::vector<std::string> others;
    for (const std::string &one : *list)
      if (one != text) others.push_back(one);
    if (!near.empty()) others.push_back(near);
    better = others;
  }
  fail(where,
       std::string(key.name) + ": expected " + quoted_choices(key.choices) + ", found \"" + text +
           "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"),
       {.key = key.name, .origin = origin, .value = show(better)});
}

}  // namespace

const std::vector<ConfigKey> &config_keys() {
  static const std::vector<std::string> any;
  static const std::vector<ConfigKey> table = {
      {"schema", int64_t{1}, any},
      // "fp8" and not "no": a file that configures FP8 must never silently train without it.
      {"mixed_precision", std::string("fp8"), {"no", "fp16", "bf16", "fp8"}},
      {"fp8.backend", std::string("auto"), any},
      {"fp8.preference", std::vector<std::string>{"te"}, any},
      {"fp8.fallback", std::vector<std::string>{}, any},
      {"fp8.require.native", false, any},
      {"fp8.require.deterministic", false, any},
      {"fp8.require.graph_capture", false, any},
      {"fp8.require.speed", std::string("any"), {"any", "vector", "native"}},
      {"fp8.require.encodings", std::vector<std::string>{}, encoding_names()},
      {"fp8.require.scaling", std::vector<std::string>{}, scaling_names()},
      {"fp8.require.recipes", std::vector<std::string>{}, any},
      {"layers.skip", std::vector<std::string>{}, any},
      {"layers.min_gain", std::string("auto"), {"auto", "torchao", "off"}},
      {"device.kind", std::string("auto"), {"auto", "cpu", "cuda"}},
      {"plugins.path", std::vector<std::string>{}, any},
      {"plugins.trust", std::string("owner"), {"owner", "pinned", "signed", "dev"}},
      {"plugins.pins", std::vector<std::string>{}, any},
      {"plugins.keys", std::vector<std::string>{}, any},
      {"plugins.locked", false, any},
      {"plugins.probe", std::string("auto"), {"auto", "always", "never"}},
      {"plugins.probe_timeout_ms", int64_t{2000}, any},
  };
  return table;
}

bool is_key_table(const std::string &name) {
  for (const ConfigKey &key : config_keys())
    if (std::string_view(key.name).starts_with(name + ".")) return true;
  return false;
}

void refuse_unknown_key(const std::string &name, const std::string &origin,
                        const std::string &where) {
  std::vector<std::string> known;
  for (const ConfigKey &key : config_keys()) known.push_back(key.name);
  const std::string near = nearest(name, known);
  fail(where,
       "unknown key \"" + name + "\"" +
           (near.empty() ? "; known keys: " + enumerate(known) +
                               "; a backend's options stand in [fp8.<backend>]"
                         : "; did you mean \"" + near + "\"?"),
       {.key = name, .origin = origin, .rename = near});
}

TomlValue checked_value(const std::string &name, TomlValue value, const std::string &origin,
                        const std::string &where) {
  const ConfigKey *key = nullptr;
  for (const ConfigKey &k : config_keys())
    if (name == k.name) key = &k;
  if (key->initial.index() == 4 && value.index() == 3)
    value = std::vector<std::string>{std::get<std::string>(value)};  // one text is a list of one
  if (key->initial.index() != value.index())
    fail(where,
         name + ": expected " + kind_of(key->initial) + ", found " + kind_of(value) +
             (std::holds_alternative<OtherToml>(value) ? "" : " (" + show(value) + ")"),
         {.key = name, .origin = origin, .value = show(key->initial)});
  if (name == "schema" && std::get<int64_t>(value) != 1)
    fail(where, "schema: expected 1, the only one that this version reads, found " + show(value),
         {.key = name, .origin = origin, .value = "1"});
  if (name == "plugins.probe_timeout_ms")
    if (const int64_t ms = std::get<int64_t>(value); ms < 1 || ms > kMaxProbeTimeout)
      fail(where,
           name + ": expected 1 to " + std::to_string(kMaxProbeTimeout) + ", found " + show(value),
           {.key = name, .origin = origin, .value = show(key->initial)});
  if (const auto *text = std::get_if<std::string>(&value))
    check_choice(*key, *text, value, origin, where);
  if (const auto *list = std::get_if<std::vector<std::string>>(&value))
    for (const std::string &text : *list) check_choice(*key, text, value, origin, where);
  return value;
}

}  // namespace octavo
