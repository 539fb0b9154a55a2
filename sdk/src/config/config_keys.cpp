// The table of core keys, and the messages for a key or a value that it does not have.
#include "sdk/src/config/config_keys.h"

#include <algorithm>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/text.h"
#include "sdk/src/config/config.h"
#include "sdk/src/config/meaning.h"
#include "sdk/src/config/requirements.h"

namespace octavo {
namespace {

constexpr int64_t kMostTraceStep = 1000000000;

// `value` is the whole value, of which `text` is one element or all.
void check_choice(const ConfigKey &key, const std::string &text, const TomlValue &value,
                  const std::string &origin, const std::string &where) {
  const std::vector<std::string> &choices = key.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return;
  std::string near;
  const std::string words = not_a_choice(text, choices, &near);
  std::optional<TomlValue> better;
  if (!near.empty()) better = near;
  if (const auto *list = std::get_if<std::vector<std::string>>(&value); list && better) {
    std::vector<std::string> others = *list;
    std::erase(others, text);
    others.push_back(near);
    better = others;
  }
  fail_config(
      where, key.name + (": expected " + words),
      keep_meaning({.key = key.name, .origin = origin}, better, any_of(choices), key.initial));
}

// One row of the table; the compiler compares the types.
template <typename T>
ConfigKey row(Key<T> key, const char *help, std::type_identity_t<T> initial,
              std::vector<std::string> choices = {}, KeyRange range = {}) {
  return {key.name, help, std::move(initial), std::move(choices), std::move(range)};
}

}  // namespace

const std::vector<ConfigKey> &config_keys() {
  static const std::vector<ConfigKey> table = {
      row(key::kSchema, "version of this file's format", 1, {},
          KeyRange{1, 1, "1, the only one that this version reads"}),
      // "fp8" and not "no": a file that configures FP8 must never silently train without it.
      row(key::kMixedPrecision, "other than fp8: every linear is not converted", "fp8",
          {"no", "fp16", "bf16", "fp8"}),
      row(key::kBackend, "id of the backend; auto tries fp8.preference in order", "auto"),
      row(key::kPreference, "what backend = \"auto\" tries", {"te"}),
      row(key::kFallback,
          "tried when nothing else can run: backends, or bf16, fp16, no; empty: refuse", {}),
      row(key::kNative, "FP8 units are required", false),
      row(key::kDeterministic, "bit-identical results in every run are required", false),
      row(key::kGraphCapture, "calls that can be captured and replayed are required", false),
      row(key::kSpeed, "the least class of speed", "any", {"any", "vector", "native"}),
      row(key::kEncodings, "formats that the kernels must have", {}, encoding_names()),
      row(key::kScaling, "granularities of scales that the kernels must have", {}, scaling_names()),
      row(key::kRecipes, "the recipe that the backend runs must be one of these", {}),
      // The head costs most of the loss that FP8 costs: docs/results/equivalence.md.
      row(key::kSkip, "shell patterns of layer or weight names that are not converted", {"*head*"}),
      row(key::kMinGain, "which sizes are not converted because FP8 would not be faster", "auto",
          {"auto", "torchao", "off"}),
      row(key::kDevice,
          "where to run, unless the host decides: cpu, or a kind that installed kernels serve, as "
          "cuda; auto is the CPU",
          "auto"),
      row(key::kKernels,
          "id of the plugin whose kernels compute; auto: the first installed one that accepts the "
          "device, on the CPU liboctavo's own",
          "auto"),
      row(key::kLayers, "ids of the plugins whose layers stand on these kernels, from below", {}),
      row(key::kPluginPath, "further directories to search, relative to this file", {}),
      row(key::kTrust, "which files may be loaded", "owner", {"owner", "pinned", "signed", "dev"}),
      row(key::kPins, "<name>:<sha256> of libraries that trust = \"pinned\" accepts", {}),
      row(key::kKeys, "public keys of minisign for trust = \"signed\", or their files", {}),
      row(key::kLocked, "refuse plugins that differ from octavo.lock", false),
      row(key::kProbe, "whether a plugin first runs in a helper process", "auto",
          {"auto", "always", "never"}),
      row(key::kProbeTimeout, "milliseconds that the helper has for one plugin", 2000, {},
          KeyRange{1, kMaxProbeTimeout, concat("1 to ", kMaxProbeTimeout)}),
      row(key::kEngine, "what carries the bytes between ranks of a host that leaves it to Octavo",
          "threads", {"threads", "mpi", "nccl"}),
      row(key::kTimeout, "seconds that one operation between ranks may take", 600, {},
          KeyRange{1, 86400, "1 to 86400"}),
      row(key::kCheckpointRunId,
          "id of the run in its checkpoints; empty: one that this process draws", ""),
      row(key::kCheckpointHash, "hash of the tensors in checkpoints", "xxh3", {"xxh3", "blake2b"}),
      row(key::kTraceDirectory, "where a Chrome trace of a step is written; empty: nowhere", ""),
      row(key::kTraceFirstStep, "the first step of the trace, from 1 on", 2, {},
          KeyRange{1, kMostTraceStep, concat("1 to ", kMostTraceStep)}),
      row(key::kTraceSteps, "steps of the trace", 1, {}, KeyRange{1, 1000, "1 to 1000"}),
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
  fail_config(where,
              "unknown key \"" + name + "\"" +
                  (near.empty() ? "; known keys: " + enumerate(known) +
                                      "; a backend's options are set in [fp8.<backend>]"
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
    fail_config(
        where,
        name + ": expected " + kind_of(key->initial) + ", found " + kind_of(value) +
            (std::holds_alternative<OtherToml>(value) ? "" : " (" + show(value) + ")"),
        keep_meaning({.key = name, .origin = origin}, meant(key->initial, key->choices, value),
                     key->choices.empty() ? kind_of(key->initial) : any_of(key->choices),
                     key->initial));
  if (const auto *number = std::get_if<int64_t>(&value);
      number != nullptr && (*number < key->range.low || *number > key->range.high))
    fail_config(where, name + ": expected " + key->range.words + ", found " + show(value),
                {.key = name,
                 .origin = origin,
                 .value = show(*number < key->range.low ? key->range.low : key->range.high)});
  if (const auto *text = std::get_if<std::string>(&value))
    check_choice(*key, *text, value, origin, where);
  if (const auto *list = std::get_if<std::vector<std::string>>(&value))
    for (const std::string &text : *list) {
      check_choice(*key, text, value, origin, where);
      const std::string problem = name == key::kSkip.name ? problem_of_pattern(text) : "";
      if (!problem.empty())
        fail_config(
            where,
            name + ": expected patterns of layer names, found \"" + text + "\" with " + problem,
            {.key = name,
             .origin = origin,
             .question = "choose another pattern for " + name + ", or leave it out"});
    }
  return value;
}

}  // namespace octavo
