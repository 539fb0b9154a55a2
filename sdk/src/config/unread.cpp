// The names of variables against what is read, and lists of trust against the mode that reads them.
#include "sdk/src/config/unread.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "sdk/src/base/text.h"
#include "sdk/src/base/variables.h"
#include "sdk/src/config/options.h"

namespace octavo {
namespace {

// What liboctavo, its helper, its kernels and its Python package read.
constexpr std::array<std::string_view, 11> kVariables = {
    "OCTAVO_MIXED_PRECISION",    "OCTAVO_BACKEND",
    "OCTAVO_PLUGIN_PATH",        "OCTAVO_PROBE_HELPER",
    "OCTAVO_FORCE_KERNELS",      "OCTAVO_LIBRARY_DIR",
    "OCTAVO_CUBLASLT",           "OCTAVO_CUDA_GEMM",
    "OCTAVO_CUDA_GEMM_SMS",      "OCTAVO_CUDA_TUNE",
    "OCTAVO_CUDA_GEMM_WORKSPACE"};
// A longer name has more letters to miss, but two wrong ones are all that a slip makes.
constexpr size_t kSlip = 2;

[[noreturn]] void refuse(const std::string &name, const std::string &words, Fix fix) {
  fix.key = fix.origin = name;
  fail_config("environment variable " + name, words, std::move(fix));
}

void check(const std::string &name, const std::vector<std::string> &plugins) {
  if (std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end()) return;
  // Options of the backend in use are checked when they are known.
  for (const std::string &id : plugins)
    if (name.starts_with(variable_of(id, ""))) return;
  for (const ConfigKey &key : config_keys())
    if (name == as_variable(key.name))
      refuse(name,
             concat("no variable sets ", key.name,
                    "; expected it in octavo.toml, or as an override "
                    "of the program (--set ",
                    key.name, "=...)"),
             {.command = "unset " + name});
  if (name.starts_with("OCTAVO_FP8_"))
    refuse(name,
           "expected OCTAVO_FP8_<BACKEND>_<OPTION> of an installed backend, found none of this "
           "name; installed are " +
               enumerate(plugins),
           {.command = "unset " + name});
  const std::string near = nearest(name, {kVariables.begin(), kVariables.end()}, kSlip);
  if (!near.empty())
    refuse(name, "not known; did you mean " + near + "?", rename_variable(name, near));
  // OCTAVO_PLUGIN_DIR: all words but the last are those of a variable. Builds have OCTAVO_CUDA_...
  // of their own.
  const auto stem = [](std::string_view whole) { return whole.substr(0, whole.rfind('_')); };
  for (const std::string_view known : kVariables)
    if (stem(known).size() > sizeof("OCTAVO") && stem(name) == stem(known) &&
        stem(name) != "OCTAVO_CUDA")
      refuse(name, concat("not known; did you mean ", known, "?"),
             rename_variable(name, std::string(known)));
}

}  // namespace

void refuse_unread_variables(const std::vector<std::string> &plugins) {
  for (const std::string &name : variables_with("OCTAVO_")) check(name, plugins);
}

std::vector<std::string> trust_settings_without_effect(const Config &config) {
  std::vector<std::string> warnings;
  const auto look = [&](key::List list, const char *trust) {
    if (config[list].empty() || config[key::kTrust] == trust) return;
    const std::string words = concat(list.name, ": expected plugins.trust = \"", trust,
                                     "\", the only value that reads them, found \"",
                                     config[key::kTrust], "\" (", config.origin(key::kTrust), ")");
    if (config.origin(key::kTrust) != kOverride)
      fail_config(config.origin(list), words, config.change(key::kTrust, trust));
    warnings.push_back(words);
  };
  look(key::kPins, "pinned");
  look(key::kKeys, "signed");
  return warnings;
}

}  // namespace octavo
