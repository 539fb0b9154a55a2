// What `accelerate launch` exports to a script, as octavo.accelerate reads it: the names are those
// of huggingface/accelerate, src/accelerate/utils/launch.py, version 1.15.
#include <cstdlib>

#include "sdk/cli/imports/import.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

constexpr const char *kPrefix = "ACCELERATE_FP8_";
constexpr const char *kSection = "fp8_config.";

// The variable behind the prefix, and the key of fp8_config that it is.
constexpr std::pair<const char *, const char *> kOfTe[] = {
    {"FORMAT", "fp8_format"},
    {"MARGIN", "margin"},
    {"INTERVAL", "interval"},
    {"AMAX_HISTORY_LEN", "amax_history_len"},
    {"AMAX_COMPUTE_ALGO", "amax_compute_algo"},
    {"USE_AUTOCAST_DURING_EVAL", "use_autocast_during_eval"},
    {"USE_MXFP8_BLOCK_SCALING", "use_mxfp8_block_scaling"}};
constexpr const char *kProducts[] = {"OVERRIDE_FPROP", "OVERRIDE_DGRAD", "OVERRIDE_WGRAD"};

const char *variable(const char *name) {
  return std::getenv((std::string(kPrefix) + name).c_str());
}

}  // namespace

Import read_launcher(std::map<std::string, std::string> &origins) {
  std::vector<Found> all;
  std::map<std::string, std::string> names;  // by key: the variable
  const auto add = [&](const std::string &key, const std::string &name, const std::string &text) {
    Found found;
    found.key = key;
    found.text = text;
    names[key] = name;
    all.push_back(found);
  };
  const auto take = [&](const char *name, const char *key) {
    if (const char *text = variable(name); text != nullptr)
      add(std::string(kSection) + key, std::string(kPrefix) + name, text);
  };
  if (const char *precision = std::getenv("ACCELERATE_MIXED_PRECISION"); precision != nullptr)
    add("mixed_precision", "ACCELERATE_MIXED_PRECISION", precision);
  take("BACKEND", "backend");
  const char *backend = variable("BACKEND");
  const std::string chosen = backend == nullptr ? "TE" : upper(backend);
  // It always exports the defaults of the other backends, too.
  if (chosen == "MSAMP") take("OPT_LEVEL", "opt_level");
  if (chosen == "TE") {
    for (const auto &[name, key] : kOfTe) take(name, key);
    std::string products, together;
    for (const char *name : kProducts) {
      const char *text = variable(name);
      products += (products.empty() ? "" : ",") + std::string(text == nullptr ? "false" : text);
      if (text != nullptr) together += (together.empty() ? "" : ", ") + std::string(kPrefix) + name;
    }
    if (!together.empty())
      add(std::string(kSection) + "override_linear_precision", together, products);
  }
  if (all.empty())
    throw Failure(OCTAVO_INVALID, kImportDomain,
                  "--launcher: expected variables that accelerate launch exports "
                  "(ACCELERATE_MIXED_PRECISION, ACCELERATE_FP8_*), found none; start this command "
                  "with the script's environment");
  Import import = translate(std::move(all), "environment", kAccelerate);
  for (const KeyResult &result : import.results)
    if (result.outcome == Outcome::kRejected)
      throw Failure(OCTAVO_INVALID, kImportDomain, names[result.found.key], ": ", result.words);
  for (const Assignment &a : import.settings) {
    const auto found = names.find(a.from.key);
    origins[a.key] = found == names.end() ? "octavo.accelerate" : found->second;
  }
  return import;
}

}  // namespace octavo::cli::imports
